// Examples that a cache keeps whole, because their sizes differ: windowed images, and sequences.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/data/batches/example_values.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/resize.h"

namespace lockstep {
namespace {

// Copies the window of a whole image, or resizes its region.
void cut_image(const CachedValue& value, const std::vector<uint8_t>& from, Size2d whole,
               const Window& where, bool resize, uint8_t* to) {
  const int64_t height = value.height(), width = value.width();
  if (resize) {
    const Region region = where.region ? resized_region(*where.region, whole[0], whole[1])
                                       : central_region(whole, height, width);
    if (value.pixel_labels()) {
      return detail::resize_region_of_labels(from.data(), whole, region, {height, width}, to);
    }
    detail::resize_region(from.data(), whole, value.channels(), region, {height, width}, to);
    return;
  }
  const int64_t top = where.top(whole[0], height), left = where.left(whole[1], width);
  for (int64_t c = 0; c < value.channels(); ++c) {
    for (int64_t y = 0; y < height; ++y, to += width) {
      const int64_t at = (c * whole[0] + top + y) * whole[1] + left;
      std::memcpy(to, from.data() + at, static_cast<size_t>(width));
    }
  }
}

}  // namespace

size_t ExampleCache::Whole::bytes() const {
  size_t bytes = sizeof(Whole);
  for (const auto& value : values) bytes += sizeof value + value.size();
  return bytes;
}

const ExampleCache::Whole* ExampleCache::keep_whole(int64_t index, const Example& example,
                                                    Whole& own) const {
  for (size_t i = 0; i < values(); ++i) {
    if (const Image* const image = value_in<Image>(example, value_at(i))) {
      own.height = image->height;
      own.width = image->width;
      own.values.push_back(to_planes(*image));
    } else {
      const std::span<const uint8_t> bytes = array_in(example, value_at(i)).bytes;
      own.values.emplace_back(bytes.begin(), bytes.end());
    }
  }
  std::atomic<const Whole*>& slot = wholes_[static_cast<size_t>(index)];
  const size_t bytes = own.bytes();
  if (taken_bytes_.fetch_add(bytes) + bytes <= reserved_bytes_) {
    auto kept = std::make_unique<const Whole>(std::move(own));
    const Whole* there = nullptr;
    if (slot.compare_exchange_strong(there, kept.get())) return kept.release();
    taken_bytes_.fetch_sub(bytes);
    return there;
  }
  taken_bytes_.fetch_sub(bytes);
  return &own;
}

// Sequences lie after the other values, which have one size.
void ExampleCache::cut(const Whole& whole, const Window& where,
                       std::vector<uint8_t>& scratch) const {
  size_t size = round_up(example_bytes_);
  for (size_t i = 0; i < values(); ++i) {
    if (value_at(i).sequence) size += round_up(whole.values[i].size());
  }
  scratch.resize(size);
  size_t next = round_up(example_bytes_);
  for (size_t i = 0; i < values(); ++i) {
    const CachedValue& value = value_at(i);
    const std::vector<uint8_t>& from = whole.values[i];
    uint8_t* const to = scratch.data() + value.offset;
    if (value.sequence) {
      const Steps steps{scratch.data() + next, static_cast<int64_t>(from.size() / value.bytes)};
      std::memcpy(to, &steps, sizeof steps);
      std::copy(from.begin(), from.end(), scratch.data() + next);
      next += round_up(from.size());
    } else if (value.kind == ValueKind::image && images_ != CachedImages::exact) {
      cut_image(value, from, {whole.height, whole.width}, where, images_ == CachedImages::resized,
                to);
    } else {
      std::copy(from.begin(), from.end(), to);
    }
  }
}

// ---- Numbers of steps ----

ExampleCache::Steps ExampleCache::steps_in(const CachedValue& value, const uint8_t* example) const {
  Steps steps;
  std::memcpy(&steps, example + value.offset, sizeof steps);
  return steps;
}

void copy_steps(const ExampleCache::Steps& steps, size_t bytes, int64_t room, void* row) {
  auto* const to = static_cast<uint8_t*>(row);
  const size_t valid = static_cast<size_t>(steps.count) * bytes;
  if (valid > 0) std::memcpy(to, steps.data, valid);
  std::memset(to + valid, 0, static_cast<size_t>(room) * bytes - valid);
}

std::atomic<int64_t>& ExampleCache::kept_steps(const CachedValue& value, int64_t index) const {
  return steps_[static_cast<size_t>(index) * sequences_ + value.number];
}

void ExampleCache::keep_steps(const CachedValue& value, int64_t index, int64_t steps) const {
  int64_t before = 0;
  const bool known = !kept_steps(value, index).compare_exchange_strong(before, steps);
  if (!known || before == steps) return;
  throw DataError("[example cache] " + named(index) + " has " + counted(steps, "step") +
                      ", but had " + std::to_string(before) + " before",
                  "a run's data must not change until the run has ended");
}

int64_t ExampleCache::steps(int64_t index, size_t input) const {
  check_index(index);
  const CachedValue& value = input == inputs_.size() ? target_.value() : inputs_.at(input);
  const std::atomic<int64_t>& kept = kept_steps(value, index);
  if (const int64_t steps = kept.load()) return steps;
  const std::optional<int64_t> known = store_->steps(index, value.from);
  if (known && *known > 0) {
    keep_steps(value, index, *known);
  } else {
    std::vector<uint8_t> scratch;
    get(index, scratch);
  }
  return kept.load();
}

}  // namespace lockstep
