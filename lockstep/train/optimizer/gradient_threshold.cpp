#include "lockstep/train/optimizer/gradient_threshold.h"

#include <cmath>

#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {
namespace {

double factor_for(double squares, double threshold, double observations) {
  const double norm = std::sqrt(squares) / observations;
  return norm > threshold ? threshold / norm : 1;
}

}  // namespace

float GradientThreshold::most(double observations) const {
  return static_cast<float>(threshold * observations);
}

std::vector<double> GradientThreshold::divisors(const std::vector<std::vector<double>>& squares,
                                                double observations) const {
  std::vector<double> result;
  if (method == GradientThresholdMethod::global_l2norm) {
    std::vector<double> all;
    for (const auto& blocks : squares) all.insert(all.end(), blocks.begin(), blocks.end());
    result.assign(squares.size(),
                  observations / factor_for(tree_sum(all), threshold, observations));
    return result;
  }
  for (const auto& blocks : squares) {
    result.push_back(observations / factor_for(tree_sum(blocks), threshold, observations));
  }
  return result;
}

}  // namespace lockstep
