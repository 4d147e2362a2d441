#include "lockstep/data/batches/mini_batch_rows.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/batches/queue_check.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

bool same_size(const CachedValue& a, const CachedValue& b) {
  return a.height() == b.height() && a.width() == b.width();
}

// Makes room for n rows of a value. The other vector becomes empty.
void make_room(const CachedValue* value, int64_t n, MiniBatchValues& rows) {
  const size_t elements = value ? static_cast<size_t>(n * value->elements()) : 0;
  const bool array = value && value->kind == ValueKind::array;
  rows.pixels.resize(array ? 0 : elements);
  rows.values.resize(array ? elements : 0);
}

uint8_t* row_of(MiniBatchValues& rows, const CachedValue& value, size_t row) {
  auto* const start =
      rows.values.empty() ? rows.pixels.data() : reinterpret_cast<uint8_t*>(rows.values.data());
  return start + row * value.bytes;
}

// Copies a value of an example. An image is augmented as drawn (null: unchanged), plane by plane.
void place(const CachedValue& value, const uint8_t* example, const AugmentationDraw* draw,
           uint8_t* to) {
  const uint8_t* const from = example + value.offset;
  if (draw && value.kind == ValueKind::image) {
    augment_planes_into(from, value.height(), value.width(), value.channels(), *draw, to);
  } else {
    std::memcpy(to, from, value.bytes);
  }
}

}  // namespace

MiniBatchRows::MiniBatchRows(const ExampleCache& cache, const MiniBatchQueueOptions& options)
    : cache_(cache), options_(options), targets_(targets_of(cache, options.targets.get())) {}

void MiniBatchRows::check(const ExampleCache& cache, const MiniBatchQueueOptions& options) {
  const CachedTargets targets = targets_of(cache, options.targets.get());
  require_in_queue(!targets || targets.cache->size() == cache.size(),
                   "there are " + std::to_string(targets ? targets.cache->size() : 0) +
                       " targets for " + std::to_string(cache.size()) + " observations");
  if (!cache.has_images()) {
    if (options.augmentation.any()) check_images(*cache.store(), "augmentation");
    if (options.noise.any()) check_images(*cache.store(), "noise");
  }
  require_in_queue(options.augment_inputs || !options.noise.any(),
                   "noise needs augmented images, but augment_inputs is off",
                   "set augment_inputs, or remove the noise");
  const CachedValue* image = nullptr;
  for (const CachedValue& input : cache.inputs()) {
    if (input.kind == ValueKind::array) continue;
    if (image == nullptr) image = &input;
    require_in_queue(
        same_size(*image, input) || !options.augmentation.moves(),
        "images are translated, rotated, scaled or sheared, but the images of an example have "
        "different sizes",
        "only reflections are possible for images of different sizes");
  }
  if (!targets || targets.value->kind == ValueKind::array) return;
  const bool of_one_size = image == nullptr || same_size(*image, *targets.value);
  require_in_queue(
      of_one_size || !options.augmentation.moves(),
      "images are translated, rotated, scaled or sheared, but their targets have another size",
      "only reflections are possible for targets of another size");
  const bool cut = cache.images() == CachedImages::windowed;
  require_in_queue(cut == (targets.cache->images() == CachedImages::windowed),
                   "images and targets must both be cut at random, or neither");
  require_in_queue(of_one_size || !cut,
                   "images are cut at random, but their targets have another size",
                   "random crops need targets of the size of the network's input");
}

void MiniBatchRows::begin(MiniBatch& batch) const {
  const int64_t n = batch.size();
  const auto rows = static_cast<size_t>(n);
  batch.labels.resize(rows);
  batch.inputs.resize(cache_.inputs().size());
  for (size_t k = 0; k < batch.inputs.size(); ++k) {
    make_room(&cache_.inputs()[k], n, batch.inputs[k]);
  }
  const bool as_read = options_.augmentation.any() && !options_.augment_inputs;
  batch.maps.resize(as_read ? rows : 0);
  make_room(targets_.value, n, batch.targets);
}

void MiniBatchRows::label(MiniBatch& batch, int64_t row) const {
  const auto i = static_cast<size_t>(row);
  batch.labels[i] = static_cast<int32_t>(cache_.label(batch.observations[i]));
}

void MiniBatchRows::make(MiniBatch& batch, int64_t row, std::vector<uint8_t>& scratch) const {
  const auto i = static_cast<size_t>(row);
  const int64_t observation = batch.observations[i];
  const AugmentationDraw drawn =
      draw_augmentation(options_.augmentation, options_.seed, batch.epoch, observation, 0);
  const AugmentationDraw* const draw = options_.augmentation.any() ? &drawn : nullptr;
  if (!batch.maps.empty()) batch.maps[i] = map_of(drawn);
  const Window where = cache_.images() == CachedImages::windowed
                           ? draw_window(options_.seed, batch.epoch, observation)
                           : Window{};
  Size2d size;
  const uint8_t* const example = cache_.get(observation, where, scratch, &size);
  for (size_t k = 0; k < batch.inputs.size(); ++k) {
    const CachedValue& input = cache_.inputs()[k];
    uint8_t* const to = row_of(batch.inputs[k], input, i);
    place(input, example, options_.augment_inputs ? draw : nullptr, to);
    if (input.kind == ValueKind::array) continue;
    add_noise(options_.noise, options_.seed, batch.epoch, observation, to,
              static_cast<int64_t>(input.bytes), static_cast<int64_t>(k));
  }
  if (!targets_) return;
  const CachedValue& target = *targets_.value;
  uint8_t* const to = row_of(batch.targets, target, i);
  if (targets_.cache == &cache_ && &target == cache_.target()) {
    return place(target, example, draw, to);
  }
  Size2d other;
  place(target, targets_.cache->get(observation, where, scratch, &other), draw, to);
  // Targets are cut at the same place, so they must have the size of their images.
  if (where.center || target.kind == ValueKind::array || size == other) return;
  throw DataError("[mini-batch queue] " + cache_.store()->name(observation) + " has " +
                      std::to_string(size[0]) + " x " + std::to_string(size[1]) +
                      " pixels, but its target has " + std::to_string(other[0]) + " x " +
                      std::to_string(other[1]),
                  "random crops need targets of the same size as the images");
}

}  // namespace lockstep
