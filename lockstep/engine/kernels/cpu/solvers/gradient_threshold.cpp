#include "lockstep/engine/kernels/solvers/gradient_threshold.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

void block_squares(const float* x, size_t count, double* sums, void* /*stream*/) {
  for (size_t begin = 0; begin < count; begin += kNormBlock) {
    double sum = 0;
    for (size_t i = begin; i < std::min(begin + kNormBlock, count); ++i) {
      const auto value = static_cast<double>(x[i]);
      sum += value * value;
    }
    *sums++ = sum;
  }
}

LOCKSTEP_CLONES void limit(float* x, size_t count, float most, void* /*stream*/) {
  for (size_t i = 0; i < count; ++i) x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
}

LOCKSTEP_CLONES void divide(float* x, size_t count, float divisor, void* /*stream*/) {
  for (size_t i = 0; i < count; ++i) x[i] = x[i] / divisor;
}

}  // namespace lockstep::kernels::cpu
