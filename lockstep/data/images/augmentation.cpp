#include "lockstep/data/images/augmentation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/angle.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/images/augment_sequence.h"
#include "lockstep/data/images/image.h"
#include "lockstep/engine/kernels/images/augment_images.h"

namespace lockstep {
namespace {

// Maps 32 random bits to an integer in [low, high].
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

constexpr NumberRangeRule rotation_rule{.min = -360, .max = 360, .symmetric = true};
constexpr NumberRangeRule scale_rule{.min = 0.01, .max = 100};
constexpr NumberRangeRule shear_rule{.min = -89, .max = 89, .symmetric = true};

// Maps 32 random bits to a number in [low, high].
double pick(uint32_t bits, const NumberRange& range, const NumberRangeRule& rule,
            const char* name) {
  const double low = range[0], high = range[1];
  if (!(low <= high && low >= rule.min && high <= rule.max)) {
    throw InvalidArgument("[augmentation] " + std::string(name) + " is [" + std::to_string(low) +
                              ", " + std::to_string(high) + "]",
                          "the lower end comes first; both lie within " + std::to_string(rule.min) +
                              " and " + std::to_string(rule.max));
  }
  return std::min(high, std::fma(high - low, bits * 0x1p-32, low));
}

uint64_t eight(const uint8_t* from) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// Copies by words of 8 bytes, the last of which may overlap the one before it. Rows are short, so
// this takes a fraction of the time of a memcpy() call per row.
void copy_bytes(const uint8_t* source, int64_t count, uint8_t* destination) {
  if (count < 8) {
    for (int64_t i = 0; i < count; ++i) destination[i] = source[i];
    return;
  }
  for (int64_t i = 0; i < count; i += 8) {
    const int64_t at = std::min(i, count - 8);
    const uint64_t bytes = eight(source + at);
    std::memcpy(destination + at, &bytes, sizeof bytes);
  }
}

// The same in reversed order. `source` is the last byte.
void copy_bytes_reversed(const uint8_t* source, int64_t count, uint8_t* destination) {
  if (count < 8) {
    for (int64_t i = 0; i < count; ++i) destination[i] = source[-i];
    return;
  }
  for (int64_t i = 0; i < count; i += 8) {
    const int64_t at = std::min(i, count - 8);
    const uint64_t bytes = __builtin_bswap64(eight(source - at - 7));
    std::memcpy(destination + at, &bytes, sizeof bytes);
  }
}

// Writes `count` pixels in reversed order. `source` is the last pixel.
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
      return copy_bytes_reversed(source, count, destination);
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
  v.flag("reflect_x", reflect_x, "flip images left to right with probability 0.5");
  v.flag("reflect_y", reflect_y, "flip images top to bottom with probability 0.5");
  v.range("translate_x", translate_x,
          "horizontal translation in pixels, to the right, drawn from [low, high]; filled with 0");
  v.range("translate_y", translate_y,
          "vertical translation in pixels, down, drawn from [low, high]; filled with 0");
  v.number_range("rotation", rotation,
                 "rotation in degrees, counterclockwise about the center, drawn from [low, high]",
                 rotation_rule);
  v.number_range("scale", scale, "scale factor of height and width, drawn from [low, high]",
                 scale_rule);
  v.number_range("shear_x", shear_x,
                 "horizontal shear in degrees, lower rows to the right, drawn from [low, high]",
                 shear_rule);
  v.number_range("shear_y", shear_y,
                 "vertical shear in degrees, right columns down, drawn from [low, high]",
                 shear_rule);
  visit_sequence_fields(*this, v);
}

void Augmentation::check() const {
  draw_augmentation(*this, 0, 0, 0);
  check_sequence_fields(*this);
}

std::string Augmentation::image_change() const {
  constexpr Size2d no_shift{0, 0};
  constexpr NumberRange no_angle{0, 0}, no_factor{1, 1};
  if (reflect_x) return "reflect_x";
  if (reflect_y) return "reflect_y";
  if (translate_x != no_shift) return "translate_x";
  if (translate_y != no_shift) return "translate_y";
  if (rotation != no_angle) return "rotation";
  if (scale != no_factor) return "scale";
  if (shear_x != no_angle) return "shear_x";
  return shear_y != no_angle ? "shear_y" : "";
}

bool Augmentation::moves() const {
  Augmentation rest = *this;
  rest.reflect_x = rest.reflect_y = false;
  return !rest.image_change().empty();
}

AugmentationDraw draw_augmentation(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                                   int64_t index_in_listing, int64_t repetition) {
  const RandomStream stream({.seed = seed,
                             .use = RandomUse::augment,
                             .a = static_cast<uint64_t>(epoch),
                             .b = static_cast<uint64_t>(index_in_listing),
                             .c = static_cast<uint64_t>(repetition)});
  const std::array<uint32_t, 4> words = stream.block(0);
  const std::array<uint32_t, 4> more = stream.block(1);
  return {.reflect_x = augmentation.reflect_x && (words[0] >> 31) != 0,
          .shift_x = pick(words[1], augmentation.translate_x, "translate_x"),
          .shift_y = pick(words[2], augmentation.translate_y, "translate_y"),
          .reflect_y = augmentation.reflect_y && (words[3] >> 31) != 0,
          .rotation = pick(more[0], augmentation.rotation, rotation_rule, "rotation"),
          .scale = pick(more[1], augmentation.scale, scale_rule, "scale"),
          .shear_x = pick(more[2], augmentation.shear_x, shear_rule, "shear_x"),
          .shear_y = pick(more[3], augmentation.shear_y, shear_rule, "shear_y")};
}

namespace {

// Applies reflections and shifts by copying pixels.
void copy_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
               const AugmentationDraw& draw, uint8_t* destination) {
  const auto bytes = [channels](int64_t pixels) { return static_cast<size_t>(pixels * channels); };
  const int64_t left = std::clamp<int64_t>(draw.shift_x, 0, width);  // columns that become empty
  const int64_t right = std::clamp<int64_t>(-draw.shift_x, 0, width);
  const int64_t top = std::clamp<int64_t>(draw.shift_y, 0, height);  // rows that become empty
  const int64_t bottom = std::clamp<int64_t>(-draw.shift_y, 0, height);
  const int64_t columns = std::max<int64_t>(width - left - right, 0);
  if (!draw.reflect_x && !draw.reflect_y && columns > 0 && top + bottom < height) {
    // Pixel p comes from p - offset, so one copy serves all rows. Columns that wrapped around are
    // then cleared.
    const int64_t offset = draw.shift_y * width + draw.shift_x, pixels = height * width;
    const int64_t begin = std::max<int64_t>(offset, 0), end = pixels + std::min<int64_t>(offset, 0);
    std::memcpy(destination + bytes(begin), source + bytes(begin - offset), bytes(end - begin));
    std::memset(destination, 0, bytes(top * width));
    std::memset(destination + bytes(pixels - bottom * width), 0, bytes(bottom * width));
    if (columns == width) return;
    for (int64_t y = top; y < height - bottom; ++y) {
      std::memset(destination + bytes(y * width), 0, bytes(left));
      std::memset(destination + bytes((y + 1) * width - right), 0, bytes(right));
    }
    return;
  }
  if (columns < width || top + bottom > 0) std::memset(destination, 0, bytes(height * width));
  // Source column that is copied to column `left`.
  const int64_t first = draw.reflect_x ? width - 1 - right : right;
  for (int64_t y = top; y < height - bottom; ++y) {
    uint8_t* row = destination + bytes(y * width);
    const int64_t reflected = y - draw.shift_y;
    const int64_t from_row = draw.reflect_y ? height - 1 - reflected : reflected;
    const uint8_t* from = source + bytes(from_row * width);
    if (draw.reflect_x) {
      if (columns > 0) copy_reversed(from + bytes(first), columns, channels, row + bytes(left));
    } else {
      copy_bytes(from + bytes(first), static_cast<int64_t>(bytes(columns)), row + bytes(left));
    }
  }
}

// The source position of a pixel: x = xx dx + xy dy, y = yx dx + yy dy, relative to the centers.
struct Inverse {
  double xx = 1, xy = 0, yx = 0, yy = 1;
};

Inverse inverse_of(const AugmentationDraw& draw) {
  const auto [sine, cosine] = sine_and_cosine_of_degrees(draw.rotation);
  const double tx = tangent_of_degrees(draw.shear_x), ty = tangent_of_degrees(draw.shear_y);
  // The inverse order: scale and rotation first (rows point down), then the shears, then
  // reflections.
  Inverse m{cosine / draw.scale, -sine / draw.scale, sine / draw.scale, cosine / draw.scale};
  m.yx = std::fma(-ty, m.xx, m.yx);
  m.yy = std::fma(-ty, m.xy, m.yy);
  m.xx = std::fma(-tx, m.yx, m.xx);
  m.xy = std::fma(-tx, m.yy, m.xy);
  if (draw.reflect_x) m = {-m.xx, -m.xy, m.yx, m.yy};
  if (draw.reflect_y) m = {m.xx, m.xy, -m.yx, -m.yy};
  return m;
}

int64_t fixed(double value) {
  return static_cast<int64_t>(std::floor(value * static_cast<double>(ImageMap::kOne) + 0.5));
}

}  // namespace

ImageMap map_of(const AugmentationDraw& draw) {
  const Inverse m = inverse_of(draw);
  return {fixed(m.xx), fixed(m.xy), fixed(m.yx), fixed(m.yy), draw.shift_x, draw.shift_y};
}

void augment_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                  const AugmentationDraw& draw, uint8_t* destination) {
  if (draw.whole_pixels()) return copy_into(source, height, width, channels, draw, destination);
  kernels::cpu::augment_image(source, kernels::interleaved(channels, height, width), map_of(draw),
                              destination);
}

void augment_into(const Image& source, const AugmentationDraw& draw, uint8_t* destination) {
  augment_into(source.pixels.data(), source.height, source.width, source.channels, draw,
               destination);
}

void augment_planes_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                         const AugmentationDraw& draw, uint8_t* destination) {
  if (!draw.whole_pixels()) {
    return kernels::cpu::augment_image(source, kernels::planar(channels, height, width),
                                       map_of(draw), destination);
  }
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t plane = c * height * width;
    copy_into(source + plane, height, width, 1, draw, destination + plane);
  }
}

}  // namespace lockstep
