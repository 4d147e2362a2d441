// The cached images of a training. Functions are not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

struct TrainingOptions;

// Targets and validation may be null. If the targets are the inputs themselves, both are the same
// cache.
struct TrainingImages {
  std::shared_ptr<const ExampleCache> training, targets, validation, validation_targets;
};

// Whether open_images() keeps the caches that it made last, with the images that are read then, and
// returns them to the next training of this process with the same datastores, sizes and budget. For
// processes that train one network after the other on the same data. At first off. Thread-safe.
void keep_images(bool keep);

// What changes the inputs of an observation from epoch to epoch, "the training data is augmented";
// "": nothing.
std::string changes_between_epochs(const TrainingData& data);

// The part of the options' memory budget for images that existing caches have not taken, in bytes.
size_t budget_left(const TrainingImages& images, const TrainingOptions& options);

// Makes caches within the options' budget and reads nothing. Throws like cache_for().
TrainingImages open_images(const Network& network, const TrainingData& data,
                           const TrainingOptions& options);

// The ranges of the caches in an arena. A range is empty if there is no such cache, or if its
// targets are the inputs.
struct SharedImages {
  SharedRange training, targets, validation, validation_targets;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(training, targets, validation, validation_targets);
  }
};

// share_images() moves all caches into an arena for other processes, before anything is read.
// attach_images() makes the caches of another process use them after they have been read. Throw
// like ExampleCache::share() and attach().
SharedImages share_images(const TrainingImages& images, SharedMemory& arena);
void attach_images(const TrainingImages& images, const SharedMemory& arena,
                   const SharedImages& ranges);

// Digests of the training and validation data.
struct Listings {
  Digest training, validation, training_targets, validation_targets;
};

// Results of one pass over all images.
struct ImagesRead {
  Listings listings;
  std::vector<std::vector<ChannelSummary>> channels;  // of each training input
  // What the datastores told of the images after an earlier reading, if that is used now.
  std::vector<std::string> notices = {};
};

// Reads all images once, or uses what an earlier training has kept of it (reading_record.h). Calls
// `progress` from time to time in the calling thread, at first with 0. Throws DataError.
ImagesRead read_images(const TrainingImages& images, ThreadPool& pool,
                       const std::function<void(int64_t done, int64_t total)>& progress);

// For a training that fails, perhaps because an image is not as an earlier training has read it,
// which workers may have found: the next training reads the images. Does nothing if these were read
// by this process.
void forget_readings(const TrainingImages& images);

}  // namespace lockstep
