#include "lockstep/train/gradient_threshold.h"

#include <algorithm>
#include <cmath>

#include "lockstep/train/tree.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = 1024;

double factor_for(double squares, double threshold, double observations) {
  const double norm = std::sqrt(squares) / observations;
  return norm > threshold ? threshold / norm : 1;
}

}  // namespace

std::vector<double> block_squares(const float* gradient_sum, size_t count) {
  std::vector<double> sums;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    double sum = 0;
    for (size_t i = begin; i < std::min(begin + kBlock, count); ++i) {
      const auto g = static_cast<double>(gradient_sum[i]);
      sum += g * g;
    }
    sums.push_back(sum);
  }
  return sums;
}

std::vector<double> threshold_factors(const std::string& method, double threshold,
                                      const std::vector<std::vector<double>>& squares,
                                      double observations) {
  std::vector<double> factors;
  if (method == "global-l2norm") {
    std::vector<double> all;
    for (const auto& blocks : squares) all.insert(all.end(), blocks.begin(), blocks.end());
    factors.assign(squares.size(), factor_for(tree_sum(all), threshold, observations));
    return factors;
  }
  for (const auto& blocks : squares) {
    factors.push_back(factor_for(tree_sum(blocks), threshold, observations));
  }
  return factors;
}

void limit_elements(float* gradient_sum, size_t count, double threshold, double observations) {
  const auto limit = static_cast<float>(threshold * observations);
  for (size_t i = 0; i < count; ++i) {
    float& g = gradient_sum[i];
    g = g > limit ? limit : g < -limit ? -limit : g;
  }
}

}  // namespace lockstep
