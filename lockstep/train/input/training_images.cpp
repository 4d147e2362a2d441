#include "lockstep/train/input/training_images.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/batches/reading_record.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// What caches depend on.
struct ImagesKey {
  DatastorePtr training, targets, validation, validation_targets;
  std::vector<Shape> inputs, outputs;
  int64_t cache_mib = 0;
  CachedImages kind = CachedImages::exact;
  bool operator==(const ImagesKey&) const = default;
};

struct KeptImages {
  ImagesKey key;
  TrainingImages images;
  std::optional<ImagesRead> read = {};  // once they are read
};

Mutex kept_mutex;
bool keeps_images LOCKSTEP_GUARDED_BY(kept_mutex) = false;
std::optional<KeptImages> kept_images LOCKSTEP_GUARDED_BY(kept_mutex);

CachedImages kind_of(const TrainingData& data) {
  if (data.resized_crop) return CachedImages::resized;
  return data.random_crop ? CachedImages::windowed : CachedImages::exact;
}

TrainingImages open_new_images(const Network& network, const TrainingData& data,
                               const TrainingOptions& options) {
  TrainingImages images;
  if (data.validation && data.validation->size() > 0) {
    images.validation = cache_for(network, data.validation, budget_left(images, options));
    images.validation_targets = target_cache_for(network, data.validation_targets,
                                                 images.validation, budget_left(images, options));
  }
  // Made after the validation caches, because a cache of images to be cut takes all the remaining
  // memory: the sizes of its images are not known in advance. If there are separate targets, they
  // get half of it.
  const CachedImages kind = kind_of(data);
  const bool halved = kind != CachedImages::exact && data.training_targets &&
                      data.training_targets != data.training;
  images.training =
      cache_for(network, data.training, budget_left(images, options) / (halved ? 2 : 1), kind);
  images.targets = target_cache_for(network, data.training_targets, images.training,
                                    budget_left(images, options));
  return images;
}

// Calls `use` for each cache and its range, once for caches that are the same.
template <class Ranges, class Use>
void for_each_cache(const TrainingImages& images, Ranges& ranges, Use use) {
  use(*images.training, ranges.training);
  if (images.targets && images.targets != images.training) use(*images.targets, ranges.targets);
  if (images.validation) use(*images.validation, ranges.validation);
  if (images.validation_targets && images.validation_targets != images.validation) {
    use(*images.validation_targets, ranges.validation_targets);
  }
}

}  // namespace

std::string changes_between_epochs(const TrainingData& data) {
  if (data.augmentation.any() || data.own_augmentation) return "the training data is augmented";
  if (data.random_crop || data.resized_crop) {
    return "regions of the training images are drawn at random";
  }
  if (data.noise.any()) return "noise is added to the training data";
  return "";
}

size_t budget_left(const TrainingImages& images, const TrainingOptions& options) {
  size_t budget = static_cast<size_t>(options.data.cache_mib) << 20;
  for (const auto& cache :
       {images.training, images.targets, images.validation, images.validation_targets}) {
    if (!cache || (cache == images.targets && images.targets == images.training)) continue;
    budget -= std::min(budget, cache->reserved_bytes());
  }
  return budget;
}

void keep_images(bool keep) {
  const MutexLock lock(kept_mutex);
  if (std::exchange(keeps_images, keep) != keep) kept_images.reset();
}

TrainingImages open_images(const Network& network, const TrainingData& data,
                           const TrainingOptions& options) {
  const MutexLock lock(kept_mutex);
  if (!keeps_images) return open_new_images(network, data, options);
  ImagesKey key{data.training,           data.training_targets,  data.validation,
                data.validation_targets, network.input_shapes(), network.output_shapes(),
                options.data.cache_mib,  kind_of(data)};
  if (kept_images && kept_images->key == key) return kept_images->images;
  kept_images.reset();  // first, because both may not fit into the memory
  TrainingImages images = open_new_images(network, data, options);
  kept_images = {std::move(key), images};
  return images;
}

SharedImages share_images(const TrainingImages& images, SharedMemory& arena) {
  SharedImages ranges;
  for_each_cache(images, ranges, [&](const ExampleCache& cache, SharedRange& range) {
    range = cache.share(arena);
  });
  return ranges;
}

void attach_images(const TrainingImages& images, const SharedMemory& arena,
                   const SharedImages& ranges) {
  for_each_cache(images, ranges, [&](const ExampleCache& cache, const SharedRange& range) {
    cache.attach(arena, range);
  });
}

namespace {

std::optional<ImagesRead> read_before(const TrainingImages& images) {
  const MutexLock lock(kept_mutex);
  if (!kept_images || kept_images->images.training != images.training) return std::nullopt;
  return kept_images->read;
}

void keep_reading(const TrainingImages& images, const ImagesRead& read) {
  const MutexLock lock(kept_mutex);
  if (kept_images && kept_images->images.training == images.training) kept_images->read = read;
}

}  // namespace

ImagesRead read_images(const TrainingImages& images, ThreadPool& pool,
                       const std::function<void(int64_t done, int64_t total)>& progress) {
  if (auto before = read_before(images)) {
    progress(images.training->size(), images.training->size());
    return *std::move(before);
  }
  struct Reading {
    const ExampleCache* cache;
    Digest* listing;
  };
  ImagesRead read;
  Listings& listings = read.listings;
  std::vector<Reading> readings;
  int64_t total = 0, before = 0;
  const auto add = [&](const std::shared_ptr<const ExampleCache>& cache, Digest& listing) {
    if (!cache) return;
    total += cache->size();
    readings.push_back({cache.get(), &listing});
  };
  add(images.training, listings.training);
  if (images.targets != images.training) add(images.targets, listings.training_targets);
  add(images.validation, listings.validation);
  if (images.validation_targets != images.validation) {
    add(images.validation_targets, listings.validation_targets);
  }
  progress(0, total);
  for (const Reading& reading : readings) {
    auto contents = read_or_recall(
        *reading.cache, pool, [&](int64_t done) { progress(before + done, total); }, read.notices);
    before += reading.cache->size();
    *reading.listing = contents.listing;
    if (reading.cache == images.training.get()) read.channels = contents.channels();
  }
  if (images.targets == images.training) listings.training_targets = listings.training;
  if (images.validation_targets == images.validation) {
    listings.validation_targets = listings.validation;
  }
  keep_reading(images, read);
  return read;
}

void forget_readings(const TrainingImages& images) {
  bool recalled = false;
  for (const auto* cache :
       {&images.training, &images.targets, &images.validation, &images.validation_targets}) {
    if (*cache == nullptr || !(*cache)->recalled()) continue;
    (*cache)->refute();
    recalled = true;
  }
  const MutexLock lock(kept_mutex);
  if (recalled && kept_images && kept_images->images.training == images.training) {
    kept_images.reset();
  }
}

}  // namespace lockstep
