// Winograd's F(2x2, 3x3) (Lavin, Gray 2016) over images whose batch lies in a vector's lanes: 16
// products instead of 36 for four results, at twice the direct algorithm's rounding error.
// Thread-safe; nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels::cpu {

// What LanesConvolution says of images and windows; `in` channels become `out`.
struct LanesWinograd {
  int64_t n = 0, in = 0, out = 0, rows = 0, columns = 0;

  size_t scratch() const;  // bytes, at a multiple of 64
  // Tiles of 2 x 2 results that are computed together.
  int64_t group() const;
  // Elements between arrays that are written side by side, so that caches have room for all.
  static constexpr int64_t kApart = 16;
};

// y from x and weights (lanes_weights.h, winograd). `bias`: by result's channel, or null. With
// weights that are turned, dx from dy: `in` are the filters then.
void lanes_winograd(const LanesWinograd& p, const float* x, const float* weights, const float* bias,
                    float* y, float* scratch);

}  // namespace lockstep::kernels::cpu
