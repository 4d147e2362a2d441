#include "lockstep/data/batches/example_cache.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/data/batches/example_values.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

std::string size_text(int64_t height, int64_t width, int64_t channels) {
  return std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels);
}

void check_image_size(int64_t height, int64_t width, int64_t channels) {
  if (height >= 1 && width >= 1 && height <= max_image_side && width <= max_image_side &&
      (channels == 1 || channels == 3)) {
    return;
  }
  throw InvalidArgument("[example cache] images of " + size_text(height, width, channels) +
                            " (rows x columns x channels) are not possible",
                        "rows and columns must be 1 to " + std::to_string(max_image_side) +
                            ", channels 1 (gray) or 3 (color)");
}

// The start of a shared cache. The states of the slots, the digests, numbers of steps and the slots
// follow.
struct SharedHead {
  int64_t size, capacity;
  uint64_t example_bytes;
  uint64_t recalled;  // 1 after recall(); set before other processes attach
};

}  // namespace

ExampleCache::ExampleCache(DatastorePtr store, const CachedShapes& shapes, size_t budget_bytes,
                           CachedImages images)
    : store_(std::move(store)), images_(images) {
  if (store_ == nullptr) throw InvalidArgument("[example cache] the datastore is null");
  size_ = store_->size();
  place_values(shapes);
  if (differ()) {
    own_steps_ = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(size_) * sequences_);
    steps_ = own_steps_.get();
    reserved_bytes_ = budget_bytes;
    wholes_ = std::make_unique<std::atomic<const Whole*>[]>(static_cast<size_t>(size_));
    return;
  }
  make_slots(budget_bytes);
}

namespace {

// The shape of a network's input. Dimensions may be invalid, which Shape does not accept.
Shape image_shape(const DatastorePtr& store, int64_t height, int64_t width, int64_t channels) {
  if (store == nullptr) throw InvalidArgument("[example cache] the datastore is null");
  check_images(*store, "example cache");
  check_image_size(height, width, channels);
  return {channels, height, width};
}

}  // namespace

ExampleCache::ExampleCache(DatastorePtr store, int64_t height, int64_t width, int64_t channels,
                           size_t budget_bytes, CachedImages images)
    : ExampleCache(store, CachedShapes{{image_shape(store, height, width, channels)}}, budget_bytes,
                   images) {}

ExampleCache::ExampleCache(DatastorePtr store, const Shape& shape, size_t budget_bytes)
    : ExampleCache(std::move(store), CachedShapes{{shape}}, budget_bytes) {}

// Gives a value its kind and its offset after those before it.
void ExampleCache::place_value(CachedValue& value, const ValueSpec& spec, const std::string& what) {
  const Shape& shape = value.shape;
  value.kind = spec.kind;
  value.sequence = spec.sequence;
  value.type = spec.type;
  const bool fits = spec.kind == ValueKind::image ? shape.rank() == 3 : shape == spec.shape;
  if (!fits || (shape.rank() < 1 && !spec.sequence) || shape.elements() < 1) {
    throw InvalidArgument("[example cache] expected arrays of " + shape.to_string() +
                          " floats, but the " + what + " (" + store_->describe() + ") are " +
                          spec.to_string());
  }
  if (spec.kind == ValueKind::image) check_image_size(shape[1], shape[2], shape[0]);
  if (spec.kind == ValueKind::array) example_bytes_ = round_up(example_bytes_, sizeof(float));
  value.bytes = static_cast<size_t>(shape.elements()) * size_of(value.dtype());
  if (value.sequence) {
    value.number = sequences_++;
    example_bytes_ = round_up(example_bytes_, sizeof(Steps));
  }
  value.offset = example_bytes_;
  example_bytes_ += value.sequence ? sizeof(Steps) : value.bytes;
}

void ExampleCache::place_values(const CachedShapes& shapes) {
  const ExampleSpec spec = store_->spec();
  if (shapes.inputs.size() != spec.inputs.size() ||
      (!shapes.from.empty() && shapes.from.size() != shapes.inputs.size()) ||
      (shapes.target && !spec.target)) {
    throw InvalidArgument("[example cache] " + counted(shapes.inputs.size(), "input") + " " +
                          (shapes.target ? "with" : "without") + " targets are expected, but " +
                          store_->describe() + " has " + std::to_string(spec.inputs.size()) +
                          (spec.target ? " with targets" : " without targets"));
  }
  bool arrays = false;
  const CachedValue* first_image = nullptr;
  const auto place = [&](CachedValue& value, const ValueSpec& of, const std::string& what) {
    place_value(value, of, what);
    arrays |= of.kind == ValueKind::array;
    if (of.kind == ValueKind::array || images_ == CachedImages::exact) return;
    if (first_image == nullptr) first_image = &value;
    if (first_image->shape[1] == value.shape[1] && first_image->shape[2] == value.shape[2]) return;
    throw InvalidArgument(
        "[example cache] images are cut at random, but those of one example have different "
        "sizes: " +
            first_image->shape.to_string() + " and " + value.shape.to_string(),
        "random crops need images of one size");
  };
  inputs_.resize(shapes.inputs.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].shape = shapes.inputs[i];
    inputs_[i].from = shapes.from.empty() ? i : shapes.from[i];
    const std::string& given = spec.inputs.at(inputs_[i].from).input;
    inputs_[i].name = !shapes.names.empty() ? shapes.names.at(i)
                      : !given.empty()      ? given
                      : inputs_.size() == 1 ? "input"
                                            : "input_" + std::to_string(i + 1);
    place(inputs_[i], spec.inputs.at(inputs_[i].from),
          inputs_.size() == 1 ? "observations" : "inputs " + std::to_string(inputs_[i].from + 1));
  }
  if (shapes.target) {
    target_.emplace().shape = *shapes.target;
    target_->from = spec.inputs.size();
    place(*target_, *spec.target, "targets");
  }
  if (arrays) example_bytes_ = round_up(example_bytes_, sizeof(float));
  if (images_ != CachedImages::exact && first_image == nullptr) {
    check_images(*store_, "random crop");
  }
}

void ExampleCache::make_slots(size_t budget_bytes) {
  capacity_ = static_cast<int64_t>(
      std::min<uint64_t>(static_cast<uint64_t>(size_), budget_bytes / example_bytes_));
  const auto slots = static_cast<size_t>(capacity_);
  reserved_bytes_ = slots * example_bytes_;
  own_slots_ = std::make_unique_for_overwrite<uint8_t[]>(slots * example_bytes_);
  own_states_ = std::make_unique<std::atomic<uint8_t>[]>(slots);
  slots_ = own_slots_.get();
  states_ = own_states_.get();
}

std::vector<DType> ExampleCache::input_types() const {
  std::vector<DType> types;
  for (const CachedValue& input : inputs_) types.push_back(input.dtype());
  return types;
}

bool ExampleCache::has_images() const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [](const CachedValue& input) { return input.kind == ValueKind::image; });
}

size_t ExampleCache::digests_offset() const {
  return cache_line + round_up(static_cast<size_t>(capacity_));
}

size_t ExampleCache::steps_offset() const {
  return digests_offset() + round_up(static_cast<size_t>(size_) * sizeof(Digest));
}

size_t ExampleCache::slots_offset() const {
  return steps_offset() + round_up(static_cast<size_t>(size_) * sequences_ * sizeof(int64_t));
}

void ExampleCache::use(const SharedRegion& region) const {
  static_assert(std::atomic<uint8_t>::is_always_lock_free && empty == 0);
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  static_assert(sizeof(SharedHead) <= cache_line);
  shared_ = region;
  own_slots_.reset();
  own_states_.reset();
  own_steps_.reset();
  states_ = reinterpret_cast<std::atomic<uint8_t>*>(region.get() + cache_line);
  steps_ = reinterpret_cast<std::atomic<int64_t>*>(region.get() + steps_offset());
  slots_ = reinterpret_cast<uint8_t*>(region.get() + slots_offset());
}

SharedRange ExampleCache::share(SharedMemory& arena) const {
  const SharedRange range =
      arena.reserve(slots_offset() + static_cast<size_t>(capacity_) * example_bytes_);
  use(arena.map(range));
  const SharedHead head{size_, capacity_, example_bytes_, 0};
  std::memcpy(shared_.get(), &head, sizeof head);
  return range;
}

void ExampleCache::attach(const SharedMemory& arena, const SharedRange& range) const {
  if (range.bytes == 0) return;
  const SharedRegion region = arena.map(range);
  SharedHead head{};
  std::memcpy(&head, region.get(), sizeof head);
  const bool same = head.size == size_ && head.example_bytes == example_bytes_ &&
                    head.capacity >= 0 && head.capacity <= size_;
  if (!same) throw InvalidArgument("[example cache] the shared cache is for other examples");
  capacity_ = head.capacity;
  use(region);
  recalled_ = head.recalled != 0;
  contents_.resize(static_cast<size_t>(size_));
  std::memcpy(contents_.data(), region.get() + digests_offset(), contents_.size() * sizeof(Digest));
}

ExampleCache::~ExampleCache() {
  if (!wholes_) return;
  for (size_t i = 0; i < static_cast<size_t>(size_); ++i) delete wholes_[i].load();
}

void ExampleCache::check_index(int64_t index) const {
  if (index < 0 || index >= size_) {
    throw InvalidArgument("[example cache] no observation with index " + std::to_string(index) +
                          " among " + std::to_string(size_) + " (" + store_->describe() + ")");
  }
}

void ExampleCache::take_content(int64_t index, const Digest& read, Digest* content) const {
  if (content != nullptr) {
    *content = read;
  } else if (!contents_.empty() && contents_[static_cast<size_t>(index)] != read) {
    if (recalled_) {
      refute();  // in a worker, its client does
      throw DataError("[example cache] " + store_->name(index) + " (" + store_->describe() +
                          ") has other contents than when an earlier training read it, although "
                          "the file system reports no change",
                      "start again: what was kept of the earlier reading is now removed");
    }
    throw DataError("[example cache] " + store_->name(index) + " (" + store_->describe() +
                        ") has changed since the run began",
                    "a run's data must not change until the run has ended");
  }
}

void ExampleCache::refute() const {
  if (refuted_) refuted_();
}

std::string ExampleCache::named(int64_t index) const {
  return store_->name(index) + " (" + store_->describe() + ")";
}

void ExampleCache::check_array(int64_t index, const CachedValue& value,
                               const Example& example) const {
  const ArrayParts array = array_in(example, value);
  if (!value.sequence && array.shape && array.elements() == value.elements()) return;
  if (!value.sequence || !array.shape) {
    throw DataError("[example cache] " + named(index) + " has " +
                    (array.shape ? std::to_string(array.elements()) : std::string("no")) +
                    " elements, expected " + std::to_string(value.elements()) +
                    (value.sequence ? " in each step" : ""));
  }
  const Shape& shape = *array.shape;
  if (shape.rank() < 1 || shape.without_batch() != value.shape || shape[0] < 1 ||
      shape.elements() != array.elements()) {
    throw DataError("[example cache] " + named(index) + " is " + shape.to_string() + " with " +
                    counted(array.elements(), "element") + ", expected one or more steps of " +
                    value.shape.to_string());
  }
  keep_steps(value, index, shape[0]);
}

void ExampleCache::check_value(int64_t index, const CachedValue& value, Example& example) const {
  if (value.kind == ValueKind::array) return check_array(index, value, example);
  auto* const image = const_cast<Image*>(value_in<Image>(example, value));
  if (image == nullptr) {
    throw DataError("[example cache] " + named(index) +
                    " is not the image that its datastore announces");
  }
  if (images_ == CachedImages::windowed) {
    check_holds_window(*image, value.height(), value.width(), named(index));
  } else if (images_ == CachedImages::resized) {
    if (image->height < 1 || image->width < 1) {
      throw DataError("[example cache] " + named(index) + " is an image without pixels");
    }
  } else if (image->height != value.height() || image->width != value.width()) {
    throw DataError("[example cache] " + named(index) + " has the size " +
                        size_text(image->height, image->width, image->channels) + ", expected " +
                        size_text(value.height(), value.width(), value.channels()) +
                        " (rows x columns x channels)",
                    "all images must have the size of the network's input: resize or crop them");
  }
  *image = convert_channels(std::move(*image), value.channels());
}

Example ExampleCache::load(int64_t index, Digest* content) const {
  Example example = store_->read(index);
  take_content(index, example.content, content);
  if (example.inputs.size() != inputs_.size()) {
    throw DataError("[example cache] " + named(index) + " has " +
                    counted(example.inputs.size(), "input") + ", expected " +
                    std::to_string(inputs_.size()));
  }
  for (const CachedValue& input : inputs_) check_value(index, input, example);
  if (target_) check_value(index, *target_, example);
  if (images_ == CachedImages::exact) return example;
  const Image* first = nullptr;
  for (size_t i = 0; i < values(); ++i) {
    const Image* const image = value_in<Image>(example, value_at(i));
    if (image == nullptr) continue;
    if (first == nullptr) first = image;
    if (image->height == first->height && image->width == first->width) continue;
    throw DataError("[example cache] the images of " + named(index) + " have different sizes, " +
                        size_text(first->height, first->width, first->channels) + " and " +
                        size_text(image->height, image->width, image->channels),
                    "random crops need images of one size");
  }
  return example;
}

void ExampleCache::write(const Example& example, uint8_t* to) const {
  for (size_t i = 0; i < values(); ++i) {
    const CachedValue& value = value_at(i);
    if (const Image* const image = value_in<Image>(example, value)) {
      to_planes_into(*image, to + value.offset);
    } else {
      std::memcpy(to + value.offset, array_in(example, value).bytes.data(), value.bytes);
    }
  }
}

const uint8_t* ExampleCache::keep(int64_t index, const Example& example,
                                  std::vector<uint8_t>& scratch) const {
  const auto slot = static_cast<size_t>(index);
  uint8_t expected = empty;
  if (index >= capacity_ ||
      !states_[slot].compare_exchange_strong(expected, busy, std::memory_order_acquire)) {
    scratch.resize(example_bytes_);
    write(example, scratch.data());
    return scratch.data();
  }
  uint8_t* const to = slots_ + slot * example_bytes_;
  write(example, to);
  states_[slot].store(ready, std::memory_order_release);
  return to;
}

const uint8_t* ExampleCache::get(int64_t index, std::vector<uint8_t>& scratch) const {
  return get(index, Window{}, scratch);
}

const uint8_t* ExampleCache::get(int64_t index, const Window& where, std::vector<uint8_t>& scratch,
                                 Size2d* whole) const {
  check_index(index);
  const auto slot = static_cast<size_t>(index);
  if (differ()) {
    const Whole* example = wholes_[slot].load(std::memory_order_acquire);
    Whole own;
    if (example == nullptr) example = keep_whole(index, load(index, nullptr), own);
    if (whole != nullptr) *whole = {example->height, example->width};
    cut(*example, where, scratch);
    return scratch.data();
  }
  if (whole != nullptr) {
    *whole = {0, 0};
    for (const CachedValue& input : inputs_) {
      if (input.kind == ValueKind::array) continue;
      *whole = {input.height(), input.width()};
      break;
    }
  }
  if (index < capacity_ && states_[slot].load(std::memory_order_acquire) == ready) {
    return slots_ + slot * example_bytes_;
  }
  return keep(index, load(index, nullptr), scratch);
}

void ExampleCache::expect(const std::vector<int64_t>& indices) const {
  std::vector<int64_t> missing;
  for (const int64_t index : indices) {
    check_index(index);
    const auto slot = static_cast<size_t>(index);
    const bool cached = differ() ? wholes_[slot].load(std::memory_order_relaxed) != nullptr
                                 : index < capacity_ && states_[slot].load() == ready;
    if (!cached) missing.push_back(index);
  }
  if (!missing.empty()) store_->expect(missing);
}

bool ExampleCache::filled() const {
  if (differ() || capacity_ < size_) return false;
  int64_t count = filled_.load(std::memory_order_relaxed);
  if (count == size_) return true;
  while (count < size_ && states_[static_cast<size_t>(count)].load() == ready) ++count;
  filled_.store(count, std::memory_order_relaxed);
  return count == size_;
}

void ExampleCache::keep_contents(std::vector<Digest> contents) const {
  contents_ = std::move(contents);
  if (!shared_) return;
  SharedHead head{};
  std::memcpy(&head, shared_.get(), sizeof head);
  head.recalled = recalled_ ? 1 : 0;
  std::memcpy(shared_.get(), &head, sizeof head);
  std::memcpy(shared_.get() + digests_offset(), contents_.data(),
              contents_.size() * sizeof(Digest));
}

CachedTargets targets_of(const ExampleCache& examples, const ExampleCache* targets) {
  if (targets == nullptr) {
    return examples.target() ? CachedTargets{&examples, examples.target()} : CachedTargets{};
  }
  if (examples.target()) {
    throw InvalidArgument("[example cache] the examples of " + examples.store()->describe() +
                          " have targets, but others (" + targets->store()->describe() +
                          ") are given as well");
  }
  return {targets, &targets->inputs().at(0)};
}

}  // namespace lockstep
