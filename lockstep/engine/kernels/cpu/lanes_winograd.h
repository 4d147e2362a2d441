// Winograd's F(4x4, 3x3) (Lavin, Gray 2016) over images whose batch lies in a vector's lanes: 36
// products instead of 144 for sixteen results, at twice the direct algorithm's rounding error (7e-7
// by norm over 64 channels). Thread-safe; nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/engine/kernels/cpu/lanes_weights.h"

namespace lockstep::kernels::cpu {

// Polynomials are multiplied at 0, +-a, +-b and infinity. Of the values that floats hold exactly
// with all their products, these round least: half as much as Lavin and Gray's 1 and 2, over 64
// channels of normally distributed numbers.
inline constexpr float kPointA = 0.625f, kPointB = 1.5f;
// What Lagrange's polynomials at 0, +-a, +-b and infinity are divided by.
inline constexpr double kDivisor0 = kPointA * kPointA * kPointB * kPointB,
                        kDivisorA = 2 * kPointA * kPointA * (kPointA * kPointA - kPointB * kPointB),
                        kDivisorB = 2 * kPointB * kPointB * (kPointB * kPointB - kPointA * kPointA);
inline constexpr double kDivisors[6] = {kDivisor0, kDivisorA, kDivisorA, kDivisorB, kDivisorB, 1};

// Results of a tile along an axis, and the products for them.
inline constexpr int kWinogradTile = 4, kWinogradPlaces = 36;
// Vectors of tiles (each with one image a lane) that are computed together, and tiles of weights
// (lanes_weights.h) whose products are kept at a time, so that they stay in the second cache.
inline constexpr int64_t kWinogradUnits = 4, kWinogradTilesOfWeights = 4;
// Elements between arrays that are written side by side, so that caches have room for all.
inline constexpr int64_t kWinogradApart = 16;

// What LanesConvolution says of images and windows; `in` channels become `out`.
struct LanesWinograd {
  int64_t n = 0, in = 0, out = 0, rows = 0, columns = 0;
  // Of images and results; transformed elements and weights are of that type, too, products and
  // sums are floats. bf16 needs instructions for it where there is AVX-512.
  DType dtype = DType::f32;

  // Bytes, at a multiple of 64, that lanes_winograd() needs, and lanes_winograd_weights().
  size_t scratch() const;
  size_t weights_scratch() const;

  // Of a sum over channels: of bfloat16 two are multiplied at a time.
  int64_t steps() const { return dtype == DType::bf16 ? (in + 1) / 2 : in; }
  // Floats, or pairs of bfloat16, of transformed images, and of products, for each of the places.
  int64_t around_all(int64_t lanes) const {
    return steps() * kWinogradUnits * lanes + kWinogradApart;
  }
  int64_t products_all(int64_t lanes) const {
    const int64_t most = kWinogradTilesOfWeights * kWeightTile;
    return (out < most ? out : most) * kWinogradUnits * lanes + kWinogradApart;
  }
};

// y from x and weights (lanes_weights.h, winograd, of the same type). `bias`: by result's channel,
// or null. With weights that are turned, dx from dy: `in` are the filters then.
void lanes_winograd(const LanesWinograd& p, const void* x, const void* weights, const float* bias,
                    void* y, float* scratch);
// dweights, out x in x 3 x 3 row-major, from x and dy: F(3x3, 4x4).
void lanes_winograd_weights(const LanesWinograd& p, const void* x, const void* dy, float* dweights,
                            float* scratch);

}  // namespace lockstep::kernels::cpu
