// The images of a training, cached.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/data/image_cache.h"
#include "lockstep/train/identity.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Targets and validation may be null; where targets are the inputs themselves, both are one cache.
struct TrainingImages {
  std::shared_ptr<const ImageCache> training, targets, validation, validation_targets;
};

// Caches within the options' budget, nothing read yet. Throws as cache_for().
TrainingImages open_images(const Network& network, const TrainingData& data,
                           const TrainingOptions& options);

// What one reading of all images tells.
struct ImagesRead {
  Listings listings;
  std::vector<ChannelSummary> channels;  // of the training inputs
};

// Reads all images once. `progress` is called now and then by the calling thread, at first with 0.
// Throws DataError.
ImagesRead read_images(const TrainingImages& images, ThreadPool& pool,
                       const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace lockstep
