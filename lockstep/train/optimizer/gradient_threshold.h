// Gradient clipping with norms that have the same bits for any number of threads, workers or
// streams. Squares are summed over blocks of 1,024 elements in row-major order
// (engine/kernels/solvers/gradient_threshold.h), and the blocks by the fixed tree. All functions
// are thread-safe.
#pragma once

#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep {

// The threshold of the options.
struct GradientThreshold {
  double threshold = 0;  // 0: none
  GradientThresholdMethod method = GradientThresholdMethod::l2norm;

  bool wanted() const { return threshold > 0; }
  // The other two methods scale by norms.
  bool of_elements() const { return method == GradientThresholdMethod::absolute_value; }
  // The limit for elements of a sum over `observations` that corresponds to the threshold for the
  // mean.
  float most(double observations) const;
  // The divisors of the parameters' sums, in place of `observations`, that keep norms within the
  // threshold: the norm of each parameter or of all together.
  // `squares` are sums of squares by parameter and block, empty for frozen parameters.
  std::vector<double> divisors(const std::vector<std::vector<double>>& squares,
                               double observations) const;
};

}  // namespace lockstep
