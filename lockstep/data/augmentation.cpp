#include "lockstep/data/augmentation.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

// Whole number in [low, high] from 32 random bits.
int64_t pick(uint32_t bits, const Size2d& range, const char* name) {
  const int64_t low = range[0], high = range[1];
  if (low > high || low < -max_image_side || high > max_image_side) {
    throw InvalidArgument(
        "[augmentation] " + std::string(name) + " is [" + std::to_string(low) + ", " +
            std::to_string(high) + "]",
        "the lower end comes first; both lie within " + std::to_string(max_image_side) + " pixels");
  }
  const uint64_t n = static_cast<uint64_t>(high - low) + 1;
  return low + static_cast<int64_t>((bits * n) >> 32);
}

// Writes `count` pixels from `source` in reversed order; `source` is the last of them.
template <int channels>
void copy_reversed(const uint8_t* source, int64_t count, uint8_t* destination) {
  for (int64_t i = 0; i < count; ++i) {
    for (int c = 0; c < channels; ++c) destination[c] = source[c];
    source -= channels;
    destination += channels;
  }
}

void copy_reversed(const uint8_t* source, int64_t count, int64_t channels, uint8_t* destination) {
  switch (channels) {
    case 1:
      return copy_reversed<1>(source, count, destination);
    case 3:
      return copy_reversed<3>(source, count, destination);
    default:
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(destination + i * channels, source - i * channels,
                    static_cast<size_t>(channels));
      }
  }
}

}  // namespace

void Augmentation::visit(FieldVisitor& v) {
  v.flag("reflect_x", reflect_x, "mirror images left to right at random, one in two");
  v.range("translate_x", translate_x,
          "pixels to move images to the right, drawn from [low, high]; emptied pixels are 0");
  v.range("translate_y", translate_y,
          "pixels to move images down, drawn from [low, high]; emptied pixels are 0");
}

bool Augmentation::any() const {
  constexpr Size2d none{0, 0};
  return reflect_x || translate_x != none || translate_y != none;
}

AugmentationDraw draw_augmentation(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                                   int64_t index_in_listing, int64_t repetition) {
  const RandomStream stream({.seed = seed,
                             .use = RandomUse::augment,
                             .a = static_cast<uint64_t>(epoch),
                             .b = static_cast<uint64_t>(index_in_listing),
                             .c = static_cast<uint64_t>(repetition)});
  const std::array<uint32_t, 4> words = stream.block(0);
  return {.reflect_x = augmentation.reflect_x && (words[0] >> 31) != 0,
          .shift_x = pick(words[1], augmentation.translate_x, "translate_x"),
          .shift_y = pick(words[2], augmentation.translate_y, "translate_y")};
}

void augment_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                  const AugmentationDraw& draw, uint8_t* destination) {
  const auto bytes = [channels](int64_t pixels) { return static_cast<size_t>(pixels * channels); };
  const int64_t left = std::clamp<int64_t>(draw.shift_x, 0, width);  // emptied columns
  const int64_t right = std::clamp<int64_t>(-draw.shift_x, 0, width);
  const int64_t top = std::clamp<int64_t>(draw.shift_y, 0, height);  // emptied rows
  const int64_t bottom = std::clamp<int64_t>(-draw.shift_y, 0, height);
  const int64_t columns = std::max<int64_t>(width - left - right, 0);
  std::memset(destination, 0, bytes(top * width));
  std::memset(destination + bytes((height - bottom) * width), 0, bytes(bottom * width));
  // Column of the source that lands in column `left`.
  const int64_t first = draw.reflect_x ? width - 1 - right : right;
  for (int64_t y = top; y < height - bottom; ++y) {
    uint8_t* row = destination + bytes(y * width);
    const uint8_t* from = source + bytes((y - draw.shift_y) * width);
    std::memset(row, 0, bytes(left));
    if (draw.reflect_x) {
      if (columns > 0) copy_reversed(from + bytes(first), columns, channels, row + bytes(left));
    } else {
      std::memcpy(row + bytes(left), from + bytes(first), bytes(columns));
    }
    std::memset(row + bytes(width - right), 0, bytes(right));
  }
}

void augment_into(const Image& source, const AugmentationDraw& draw, uint8_t* destination) {
  augment_into(source.pixels.data(), source.height, source.width, source.channels, draw,
               destination);
}

}  // namespace lockstep
