// Gradient clipping, by the law's norms: squares are summed by blocks of 1,024 elements in
// row-major order (kernels/gradient_threshold.h), blocks by the fixed tree, so that no number of
// threads, workers or queues matters. All functions are thread-safe.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// As the options state it.
struct GradientThreshold {
  double threshold = 0;  // 0: none
  std::string method;

  bool wanted() const { return threshold > 0; }
  // "absolute-value" limits elements, the other two scale by norms.
  bool of_elements() const { return method == "absolute-value"; }
  // What elements of a sum over `observations` are limited to, so that those of the mean are to the
  // threshold.
  float most(double observations) const;
  // What each learnable's sum is to be divided by, instead of `observations`, so that no norm
  // passes the threshold: of each learnable by itself ("l2norm") or of all together
  // ("global-l2norm"). `squares`: of the sums, by learnable and block; none where it is frozen.
  std::vector<double> divisors(const std::vector<std::vector<double>>& squares,
                               double observations) const;
};

}  // namespace lockstep
