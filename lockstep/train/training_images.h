// The images of a training, cached. Functions are for one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/data/image_cache.h"
#include "lockstep/train/evaluator.h"
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

// Where caches lie in an arena; a targets' place is empty where they are the inputs.
struct SharedImages {
  SharedPlace training, targets, validation, validation_targets;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(training, targets, validation, validation_targets);
  }
};

// Puts all caches into an arena, before anything is read, for other processes; these take their
// place there, when they have been read. Throw as ImageCache::share() and attach().
SharedImages share_images(const TrainingImages& images, SharedMemory& arena);
void attach_images(const TrainingImages& images, const SharedMemory& arena,
                   const SharedImages& places);

// What validates while training; null without validation images. Keep network and pool alive.
std::unique_ptr<Evaluator> make_validation(Network& network, const TrainingImages& images,
                                           const TrainingData& data, const TrainingOptions& options,
                                           ThreadPool& pool, std::vector<MetricPtr> metrics);

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
