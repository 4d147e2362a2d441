// Winograd's F(4x4, 3x3) (Lavin, Gray 2016) for images whose batch fills a vector's lanes: 36
// products instead of 144 for sixteen results, at twice the direct algorithm's rounding error (7e-7
// by norm over 64 channels). Thread-safe; allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/weights.h"

namespace lockstep::kernels::cpu {

// Polynomials are evaluated at 0, +-a, +-b and infinity. Among values that floats represent exactly
// with all their products, these have the smallest rounding error: half that of Lavin and Gray's 1
// and 2, over 64 channels of normally distributed numbers.
inline constexpr float kPointA = 0.625f, kPointB = 1.5f;
// Divisors of the Lagrange polynomials at 0, +-a, +-b and infinity.
inline constexpr double kDivisor0 = kPointA * kPointA * kPointB * kPointB,
                        kDivisorA = 2 * kPointA * kPointA * (kPointA * kPointA - kPointB * kPointB),
                        kDivisorB = 2 * kPointB * kPointB * (kPointB * kPointB - kPointA * kPointA);
inline constexpr double kDivisors[6] = {kDivisor0, kDivisorA, kDivisorA, kDivisorB, kDivisorB, 1};

// Results of a tile along one axis, and the products for one tile.
inline constexpr int kWinogradTile = 4, kWinogradElements = 36;
// Number of vectors of tiles (one image per lane) that are computed together, and number of tiles
// of weights (batch_lanes/weights.h) whose products are kept at a time, so that they stay in the
// second-level cache.
inline constexpr int64_t kWinogradUnits = 4, kWinogradTilesOfWeights = 4;
// Padding in elements between arrays that are written together, to avoid cache conflicts.
inline constexpr int64_t kWinogradApart = 16;

// Images and windows as for LanesConvolution. Maps `in` channels to `out` channels.
struct LanesWinograd {
  int64_t n = 0, in = 0, out = 0, rows = 0, columns = 0;
  // Type of images, results, transformed elements and weights. Products and sums are floats. With
  // AVX-512, bf16 requires AVX-512 BF16.
  DType dtype = DType::f32;

  // Scratch bytes of lanes_winograd() and lanes_winograd_weights(). Scratch is aligned to 64 bytes.
  size_t scratch() const;
  size_t weights_scratch() const;

  // Steps of a sum over channels. bfloat16 multiplies two channels per step.
  int64_t steps() const { return dtype == DType::bf16 ? (in + 1) / 2 : in; }
  // Size of the transformed images and of the products for each of the 36 elements, in floats or
  // pairs of bfloat16.
  int64_t around_all(int64_t lanes) const {
    return steps() * kWinogradUnits * lanes + kWinogradApart;
  }
  int64_t products_all(int64_t lanes) const {
    const int64_t most = kWinogradTilesOfWeights * kWeightTile;
    return (out < most ? out : most) * kWinogradUnits * lanes + kWinogradApart;
  }
};

// Computes y from x and weights (batch_lanes/weights.h with `winograd`, of the same type). `bias`
// has one element per output channel, or is null. With turned weights it computes dx from dy; then
// `in` is the number of filters.
void lanes_winograd(const LanesWinograd& p, const void* x, const void* weights, const float* bias,
                    void* y, float* scratch);
// Computes dweights (out x in x 3 x 3, row-major) from x and dy with F(3x3, 4x4).
void lanes_winograd_weights(const LanesWinograd& p, const void* x, const void* dy, float* dweights,
                            float* scratch);

}  // namespace lockstep::kernels::cpu
