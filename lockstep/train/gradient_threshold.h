// Gradient clipping, by the law's norms: squares are summed by blocks of 1,024 elements in
// row-major order, blocks by the fixed tree, so that no number of threads or workers matters. All
// functions are thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

// Sum of squares of a learnable's gradient: of each block of 1,024 elements, in order.
std::vector<double> block_squares(const float* gradient_sum, size_t count);

// What each learnable's gradient is to be multiplied with so that no norm passes `threshold`.
// `method`: "l2norm" (of each learnable by itself) or "global-l2norm" (of all together).
// `squares`: block_squares() of the sums over `observations`, by learnable.
std::vector<double> threshold_factors(const std::string& method, double threshold,
                                      const std::vector<std::vector<double>>& squares,
                                      double observations);

// "absolute-value": elements of the mean gradient beyond +-threshold become that; NaN stays.
void limit_elements(float* gradient_sum, size_t count, double threshold, double observations);

}  // namespace lockstep
