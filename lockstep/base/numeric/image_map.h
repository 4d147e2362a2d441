// Affine maps of images, in integers.
#pragma once

#include <cstdint>

namespace lockstep {

// Where a pixel of the result comes from. A pixel that lies dx right of and dy below the center,
// after subtraction of the shifts, comes from xx dx + xy dy right of and yx dx + yy dy below the
// source's center.
struct ImageMap {
  static constexpr int kBits = 24;
  static constexpr int64_t kOne = int64_t{1} << kBits;
  int64_t xx = kOne, xy = 0, yx = 0, yy = kOne;  // in units of 2^-24, below 2^43
  int64_t shift_x = 0, shift_y = 0;              // whole pixels right and down, within 2^14
  friend bool operator==(const ImageMap&, const ImageMap&) = default;
};

}  // namespace lockstep
