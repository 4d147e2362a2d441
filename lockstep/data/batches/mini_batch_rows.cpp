#include "lockstep/data/batches/mini_batch_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/own_augmentation.h"
#include "lockstep/data/batches/queue_check.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

bool same_size(const CachedValue& a, const CachedValue& b) {
  return a.height() == b.height() && a.width() == b.width();
}

// Pixels 0 to 255 as floats 0 to 1, in place: the pixels are the last bytes of the floats' memory.
void pixels_to_floats(float* to, int64_t count) {
  constexpr int64_t kTogether = 256;
  const uint8_t* const from = reinterpret_cast<uint8_t*>(to + count) - count;
  std::array<uint8_t, kTogether> pixels;
  for (int64_t first = 0; first < count; first += kTogether) {
    const int64_t n = std::min(kTogether, count - first);
    std::copy_n(from + first, n, pixels.data());
    for (int64_t i = 0; i < n; ++i) {
      to[first + i] = target_of(pixels[static_cast<size_t>(i)]);
    }
  }
}

// Classes of pixels as labels, in place, like pixels_to_floats().
void pixels_to_labels(int32_t* to, int64_t count) {
  const uint8_t* const from = reinterpret_cast<uint8_t*>(to + count) - count;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t pixel = from[i];
    to[i] = label_of_pixel(pixel);
  }
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
    : cache_(cache),
      options_(options),
      targets_(targets_of(cache, options.targets.get())),
      changes_images_(!options.augmentation.image_change().empty()),
      changes_sequences_(!options.augmentation.sequence_change().empty()) {
  for (const CachedValue& input : cache.inputs()) {
    arrays_.push_back({.name = input.name, .type = input.dtype(), .shape = input.shape});
  }
  if (targets_) {
    // Integers are the labels of steps, or of pixels.
    const bool labels = targets_.value->type == DType::i32;
    const Shape& shape = targets_.value->shape;
    arrays_.push_back({.name = labels ? "labels" : "targets",
                       .type = labels ? DType::i32 : DType::f32,
                       .shape = targets_.value->pixel_labels() ? shape.without_batch() : shape});
    has_labels_ = !labels && !cache.store()->classes().empty();
  }
  labels_ = arrays_.size();
  if (has_labels_) arrays_.push_back({.name = "labels", .type = DType::i32, .shape = {}});
  if (!mixes()) return;
  arrays_.push_back({.name = "other_labels", .type = DType::i32, .shape = {}});
  arrays_.push_back({.name = "label_shares", .type = DType::f32, .shape = {}});
}

std::shared_ptr<const ExampleCache> MiniBatchRows::cache_of(const DatastorePtr& data,
                                                            const std::vector<Shape>& inputs,
                                                            const MiniBatchQueueOptions& options) {
  require_in_queue(data != nullptr, "the datastore is null");
  CachedShapes shapes{.inputs = inputs};
  const std::optional<ValueSpec> target = data->spec().target;
  if (target && target->kind == ValueKind::array) {
    shapes.target = target->shape;
  } else if (target) {
    const bool known = options.target_shape || (!inputs.empty() && inputs[0].rank() == 3);
    require_in_queue(known, "the targets of " + data->describe() + " are images without a size",
                     "set target_shape to channels x rows x columns, such as "
                     "network.output_shapes()[0]");
    shapes.target = options.target_shape ? *options.target_shape : inputs[0];
    if (target->pixel_labels()) {
      require_in_queue(shapes.target->rank() == 3, "label images need channels x rows x columns");
      shapes.target = Shape{1, (*shapes.target)[1], (*shapes.target)[2]};
    }
  }
  const CachedImages kind = options.resized_crop ? CachedImages::resized : CachedImages::exact;
  return std::make_shared<const ExampleCache>(data, shapes, options.cache_bytes, kind);
}

void MiniBatchRows::check(const ExampleCache& cache, const MiniBatchQueueOptions& options) {
  const CachedTargets targets = targets_of(cache, options.targets.get());
  require_in_queue(!targets || targets.cache->size() == cache.size(),
                   "received " + counted(targets ? targets.cache->size() : 0, "target") + " for " +
                       counted(cache.size(), "observation"));
  require_in_queue((cache.images() == CachedImages::resized) == options.resized_crop.has_value(),
                   "a random resized crop needs a cache of images that are resized");
  if (options.resized_crop) options.resized_crop->check();
  check_augmentation(*cache.store(), options.augmentation);
  if (options.noise.any() && !cache.has_images()) check_images(*cache.store(), "noise");
  require_in_queue(options.augment_inputs || !options.noise.any(),
                   "noise needs augmented images, but augment_inputs is off",
                   "set augment_inputs, or remove the noise");
  if (options.own_augmentation) {
    check_images(*cache.store(), "augmentation",
                 "the function `" + options.own_augmentation.name + "`");
    require_in_queue(options.augment_inputs,
                     "own_augmentation needs augmented images, but augment_inputs is off");
  }
  require_in_queue(!options.augmentation.mixes() || (cache.inputs().size() == 1 && !targets),
                   "mixup and cutmix are for examples of one image and a class label",
                   "leave them out of the augmentation");
  require_in_queue(!options.augmentation.mixes() || options.augment_inputs,
                   "mixup and cutmix need augmented images, but augment_inputs is off");
  const CachedValue* image = nullptr;
  for (const CachedValue& input : cache.inputs()) {
    if (input.kind == ValueKind::array) continue;
    if (image == nullptr) image = &input;
    require_in_queue(
        options.augmentation.fill.size() == 1 || input.channels() == 3,
        "fill has three values, but images have " + std::to_string(input.channels()) + " channel",
        "give one value");
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
  const bool cut = cache.images() != CachedImages::exact;
  require_in_queue(cache.images() == targets.cache->images(),
                   "images and targets must both be cut at random, or neither");
  require_in_queue(of_one_size || !cut,
                   "images are cut at random, but their targets have another size",
                   "random crops need targets of the size of the network's input");
}

void MiniBatchRows::begin(MiniBatch& batch) const {
  const int64_t n = batch.size();
  batch.arrays.resize(arrays_.size());
  for (size_t i = 0; i < arrays_.size(); ++i) {
    RowArray& array = batch.arrays[i];
    array.name = arrays_[i].name;
    array.type = arrays_[i].type;
    array.shape = arrays_[i].shape;
    if (!size_sequences(batch, i)) array.resize(n);
  }
  const bool as_read = changes_images_ && !options_.augment_inputs;
  batch.maps.resize(as_read ? static_cast<size_t>(n) : 0);
}

// Array `i` has the steps of all rows, if its values are sequences. Returns whether they are.
bool MiniBatchRows::size_sequences(MiniBatch& batch, size_t i) const {
  const bool input = i < cache_.inputs().size();
  const bool target = !input && targets_ && i == cache_.inputs().size();
  if (!(input ? cache_.inputs()[i].sequence : target && targets_.value->sequence)) return false;
  std::vector<int64_t> lengths;
  lengths.reserve(batch.observations.size());
  for (const int64_t observation : batch.observations) {
    const int64_t steps = input ? cache_.steps(observation, i) : targets_.steps(observation);
    lengths.push_back(segment_of(batch, steps).count);
  }
  batch.arrays[i].resize(lengths);
  return true;
}

// The steps of a sequence that are in this segment of it.
IndexRange MiniBatchRows::segment_of(const MiniBatch& batch, int64_t steps) const {
  if (batch.segments == 0) return {0, steps};
  const int64_t first = std::min(steps, batch.segment * options_.sequence_length);
  return {first, std::min(options_.sequence_length, steps - first)};
}

void MiniBatchRows::label(MiniBatch& batch, int64_t row) const {
  if (!has_labels_) return;
  const auto i = static_cast<size_t>(row);
  const auto label = static_cast<int32_t>(cache_.label(batch.observations[i]));
  batch.arrays[labels_].values<int32_t>()[i] = label;
}

std::vector<IndexRange> MiniBatchRows::mixed_with(const std::vector<IndexRange>& rows, int64_t n) {
  std::vector<IndexRange> others;
  for (const IndexRange& range : rows) {
    if (range.count > 0) others.push_back({(range.first + n - 1) % n, 1});
  }
  return others;
}

void MiniBatchRows::mix(MiniBatch& batch, const std::vector<IndexRange>& rows) const {
  const auto n = static_cast<size_t>(batch.size());
  const CachedValue& image = cache_.inputs()[0];
  const int64_t height = image.height(), width = image.width();
  const MixDraw draw = draw_mix(options_.augmentation, options_.seed, batch.epoch, batch.index);
  const std::span<const int32_t> labels = batch.arrays[labels_].values<int32_t>();
  const std::span<int32_t> others = batch.arrays[labels_ + 1].values<int32_t>();
  for (size_t i = 0; i < n; ++i) others[i] = labels[(i + n - 1) % n];
  std::ranges::fill(batch.arrays[labels_ + 2].values<float>(),
                    static_cast<float>(draw.own_share(height, width)));
  auto* const pixels = reinterpret_cast<uint8_t*>(batch.arrays[0].bytes.data());
  const size_t bytes = batch.arrays[0].row_bytes();
  const std::vector<uint8_t> last(pixels + (n - 1) * bytes, pixels + n * bytes);
  // From the last row on, so that the one before is not mixed yet.
  for (auto range = rows.rbegin(); range != rows.rend(); ++range) {
    for (int64_t i = range->end() - 1; i >= range->first; --i) {
      uint8_t* const own = pixels + static_cast<size_t>(i) * bytes;
      mix_into(draw, i > 0 ? own - bytes : last.data(), height, width, image.channels(), own);
    }
  }
}

// Augments a row of input `k`, a sequence of `steps` steps of which the mini-batch has a segment.
void MiniBatchRows::augment_steps(MiniBatch& batch, int64_t row, size_t k, int64_t steps) const {
  RowArray& array = batch.arrays[k];
  if (!changes_sequences_ || array.type != DType::f32) return;
  const auto i = static_cast<size_t>(row);
  const IndexRange segment = segment_of(batch, steps);
  const int64_t step = array.shape.elements();
  const int64_t channels = array.shape.rank() == 0 ? 1 : array.shape[0];
  const SequencePart part{steps, channels, segment.first, segment.count, step / channels};
  float* const values = array.values<float>().data() + array.offsets[i] * step;
  augment_sequence(options_.augmentation, options_.seed, batch.epoch, key_of(batch, i), part,
                   values, static_cast<int64_t>(k));
}

// The key of all draws of a row. An observation that an epoch has several times has other draws
// each time.
int64_t MiniBatchRows::key_of(const MiniBatch& batch, size_t row) {
  constexpr int kMostObservations = 40;  // bits
  const int64_t observation = batch.observations[row];
  return batch.repetitions.empty() ? observation
                                   : observation + (batch.repetitions[row] << kMostObservations);
}

// Where the images of an observation are cut.
Window MiniBatchRows::window_of(int64_t epoch, int64_t key) const {
  switch (cache_.images()) {
    case CachedImages::windowed:
      return draw_window(options_.seed, epoch, key);
    case CachedImages::resized:
      return {.center = false,
              .region = draw_resized_crop(*options_.resized_crop, options_.seed, epoch, key)};
    default:
      return {};
  }
}

// Copies a row's steps of array `k` from an example, and returns how many the whole sequence has.
int64_t MiniBatchRows::place_steps(MiniBatch& batch, size_t row, size_t k,
                                   const ExampleCache& cache, const CachedValue& value,
                                   const uint8_t* example) const {
  RowArray& array = batch.arrays[k];
  const ExampleCache::Steps steps = cache.steps_in(value, example);
  const IndexRange segment = segment_of(batch, steps.count);
  if (segment.count != array.offsets[row + 1] - array.offsets[row]) {
    throw DataError("[mini-batch queue] " + cache.store()->name(batch.observations[row]) + " has " +
                    counted(segment.count, "step") + ", and its datastore announces " +
                    std::to_string(array.offsets[row + 1] - array.offsets[row]));
  }
  if (segment.count == 0) return steps.count;
  std::memcpy(array.bytes.data() + static_cast<size_t>(array.offsets[row]) * value.bytes,
              steps.data + static_cast<size_t>(segment.first) * value.bytes,
              static_cast<size_t>(segment.count) * value.bytes);
  return steps.count;
}

void MiniBatchRows::make(MiniBatch& batch, int64_t row, std::vector<uint8_t>& scratch) const {
  const auto i = static_cast<size_t>(row);
  const int64_t observation = batch.observations[i];
  const int64_t key = key_of(batch, i);
  const AugmentationDraw drawn =
      draw_augmentation(options_.augmentation, options_.seed, batch.epoch, key, 0);
  const AugmentationDraw* const draw = changes_images_ ? &drawn : nullptr;
  if (!batch.maps.empty()) batch.maps[i] = map_of(drawn);
  const Window where = window_of(batch.epoch, key);
  Size2d size;
  const uint8_t* const example = cache_.get(observation, where, scratch, &size);
  for (size_t k = 0; k < cache_.inputs().size(); ++k) {
    const CachedValue& input = cache_.inputs()[k];
    if (input.sequence) {
      const int64_t steps = place_steps(batch, i, k, cache_, input, example);
      augment_steps(batch, row, k, steps);
    } else {
      place(input, example, options_.augment_inputs ? draw : nullptr, row_of(batch, k, i));
    }
  }
  if (targets_) place_target(batch, i, {where, size, example}, draw, scratch);
  if (options_.own_augmentation) call_function(batch, i, key);
  for (size_t k = 0; k < cache_.inputs().size(); ++k) {
    const CachedValue& input = cache_.inputs()[k];
    if (input.sequence || input.kind == ValueKind::array) continue;
    add_noise(options_.noise, options_.seed, batch.epoch, key, row_of(batch, k, i),
              static_cast<int64_t>(input.bytes), static_cast<int64_t>(k));
  }
  if (targets_) convert_target(row_of(batch, cache_.inputs().size(), i));
}

uint8_t* MiniBatchRows::row_of(MiniBatch& batch, size_t array, size_t row) {
  std::byte* const first = batch.arrays[array].bytes.data();
  return reinterpret_cast<uint8_t*>(first + row * batch.arrays[array].row_bytes());
}

// Copies the target of a row. Of an image these are the pixels, at the end of the row's memory.
void MiniBatchRows::place_target(MiniBatch& batch, size_t row, const CutExample& input,
                                 const AugmentationDraw* draw,
                                 std::vector<uint8_t>& scratch) const {
  const CachedValue& target = *targets_.value;
  const int64_t observation = batch.observations[row];
  const bool own = targets_.cache == &cache_ && &target == cache_.target();
  Size2d other = input.size;
  const uint8_t* const from =
      own ? input.example : targets_.cache->get(observation, input.where, scratch, &other);
  const size_t array = cache_.inputs().size();
  if (target.sequence) {
    place_steps(batch, row, array, *targets_.cache, target, from);
    return;
  }
  const bool image = target.kind == ValueKind::image;
  AugmentationDraw moves;
  if (draw) moves = target.pixel_labels() ? draw->for_labels() : draw->only_moves();
  place(target, from, draw ? &moves : nullptr,
        row_of(batch, array, row) + (image ? 3 * target.bytes : 0));
  // Targets are cut at the same position, so they must have the size of their images.
  if (own || input.where.center || !image || input.size == other) return;
  throw DataError("[mini-batch queue] " + cache_.store()->name(observation) + " has " +
                      std::to_string(input.size[0]) + " x " + std::to_string(input.size[1]) +
                      " pixels, but its target has " + std::to_string(other[0]) + " x " +
                      std::to_string(other[1]),
                  "random crops need targets of the same size as the images");
}

// The pixels of place_target() as floats or labels.
void MiniBatchRows::convert_target(uint8_t* row) const {
  const CachedValue& target = *targets_.value;
  if (target.sequence || target.kind != ValueKind::image) return;
  if (target.pixel_labels()) {
    pixels_to_labels(reinterpret_cast<int32_t*>(row), target.elements());
  } else {
    pixels_to_floats(reinterpret_cast<float*>(row), target.elements());
  }
}

void MiniBatchRows::call_function(MiniBatch& batch, size_t row, int64_t key) const {
  constexpr uint64_t kOwn = uint64_t{1} << 61;
  std::vector<PlanarImage> images;
  const auto planar = [](const CachedValue& value, uint8_t* planes) {
    return PlanarImage{value.height(), value.width(), value.channels(), planes};
  };
  const size_t inputs = cache_.inputs().size();
  for (size_t k = 0; k < inputs; ++k) {
    const CachedValue& input = cache_.inputs()[k];
    const bool image = input.kind == ValueKind::image && !input.sequence;
    if (image) images.push_back(planar(input, row_of(batch, k, row)));
  }
  const int64_t observation = batch.observations[row];
  OwnAugmentationTask task{.images = images,
                           .name = [&] { return cache_.store()->name(observation); }};
  task.twice = batch.index == 0 && row == 0;
  PlanarImage target;
  if (targets_ && targets_.value->kind == ValueKind::image && !targets_.value->sequence) {
    const CachedValue& value = *targets_.value;
    target = planar(value, row_of(batch, inputs, row) + 3 * value.bytes);
    if (value.pixel_labels()) {
      task.classes = static_cast<int64_t>(cache_.store()->classes().size());
    }
    task.target = &target;
  }
  AugmentedExample example;
  example.observation = observation;
  example.epoch = batch.epoch;
  if (has_labels_) example.label = cache_.label(observation);
  example.random =
      RandomStream({options_.seed, RandomUse::augment, static_cast<uint64_t>(batch.epoch),
                    static_cast<uint64_t>(key), kOwn});
  augment_by_function(options_.own_augmentation, std::move(example), task);
}

}  // namespace lockstep
