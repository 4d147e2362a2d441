// Reflection, shear, rotation, scaling and shift of images, with one map per image. Positions and
// weights are integers, and CPU and GPU share this code, so every device gives the same bytes.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/base/numeric/image_map.h"
#include "lockstep/engine/kernels/interface/host_device.h"

namespace lockstep::kernels {

// Height and width are at most 2^14.
struct ImageLayout {
  int64_t channels = 1, height = 1, width = 1;
  int64_t pixel_step = 1, channel_step = 1;  // elements between pixels of a row, and channels
};

// Memory order channel by channel (planar), or pixel by pixel (interleaved).
inline ImageLayout planar(int64_t channels, int64_t height, int64_t width) {
  return {channels, height, width, 1, height * width};
}
inline ImageLayout interleaved(int64_t channels, int64_t height, int64_t width) {
  return {channels, height, width, channels, 1};
}

// The images that augment_images() transforms: planar, in consecutive memory, with one map each.
// Source and destination must not overlap.
struct AugmentImages {
  const uint8_t* source = nullptr;
  const ImageMap* maps = nullptr;
  uint8_t* destination = nullptr;
  int64_t images = 0;
  ImageLayout image = {};
};

// The upper left of the four pixels around a position, and the offsets from it down and right, in
// units of 2^-8.
struct ImagePosition {
  int64_t row = 0, column = 0, down = 0, right = 0;
};

LOCKSTEP_HOST_DEVICE inline ImagePosition position_in_source(const ImageMap& m,
                                                             const ImageLayout& image, int64_t y,
                                                             int64_t x) {
  // Twice the distance from the center is an integer, even when the center lies between pixels.
  // Halving is exact or rounds down on every device.
  const int64_t dx = 2 * (x - m.shift_x) - (image.width - 1);
  const int64_t dy = 2 * (y - m.shift_y) - (image.height - 1);
  const int64_t at_x = (m.xx * dx + m.xy * dy + (image.width - 1) * ImageMap::kOne) >> 1;
  const int64_t at_y = (m.yx * dx + m.yy * dy + (image.height - 1) * ImageMap::kOne) >> 1;
  constexpr int64_t half_step = int64_t{1} << (ImageMap::kBits - 9);
  const int64_t column = (at_x + half_step) >> (ImageMap::kBits - 8);
  const int64_t row = (at_y + half_step) >> (ImageMap::kBits - 8);
  return {row >> 8, column >> 8, row & 255, column & 255};
}

// Linear interpolation. Pixels outside the image count as `fill`. `plane` is the channel's first
// element.
LOCKSTEP_HOST_DEVICE inline uint8_t pixel_at(const uint8_t* plane, const ImageLayout& image,
                                             const ImagePosition& position, uint8_t fill = 0) {
  const int64_t row = position.row, column = position.column;
  if (column < -1 || column >= image.width || row < -1 || row >= image.height) return fill;
  const bool in_left = column >= 0, in_right = column + 1 < image.width;
  const bool in_top = row >= 0, in_bottom = row + 1 < image.height;
  const uint8_t* const from = plane + (row * image.width + column) * image.pixel_step;
  const int64_t below = image.width * image.pixel_step;
  const int64_t right = position.right, left = 256 - right, down = position.down, up = 256 - down;
  int64_t sum = 1 << 15;  // the weights add up to 2^16
  sum += left * up * (in_top && in_left ? from[0] : fill);
  sum += right * up * (in_top && in_right ? from[image.pixel_step] : fill);
  sum += left * down * (in_bottom && in_left ? from[below] : fill);
  sum += right * down * (in_bottom && in_right ? from[below + image.pixel_step] : fill);
  return static_cast<uint8_t>(sum >> 16);
}

// The nearest pixel, of two equally near ones the later: for values that cannot be mixed.
inline uint8_t nearest_at(const uint8_t* plane, const ImageLayout& image,
                          const ImagePosition& position, uint8_t fill) {
  const int64_t row = position.row + (position.down >> 7),
                column = position.column + (position.right >> 7);
  if (column < 0 || column >= image.width || row < 0 || row >= image.height) return fill;
  return plane[(row * image.width + column) * image.pixel_step];
}

namespace cpu {
// Transforms one image. `fill`: the values outside for its channels; later ones have the last.
// `nearest`: pixels are those of the source, not interpolated.
void augment_image(const uint8_t* source, const ImageLayout& image, const ImageMap& map,
                   const std::array<uint8_t, 3>& fill, uint8_t* destination, bool nearest = false);
}  // namespace cpu

}  // namespace lockstep::kernels
