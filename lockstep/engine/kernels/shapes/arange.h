// Numbers at equal distances.
#pragma once

#include "lockstep/engine/kernels/elementwise/arithmetic.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst: a vector of `count` elements, f32. The first `from_start` of them are start + i * step, the
// others stop - (count - 1 - i) * step, in double and rounded once. No input, and one pass.
struct ArangeProblem {
  int64_t count = 0, from_start = 0;
  double start = 0, stop = 0, step = 0;
};

inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {

// Element i.
LOCKSTEP_FUNCTION float arange_element(const ArangeProblem& p, int64_t i) {
  const bool first = i < p.from_start;
  const auto steps = static_cast<double>(first ? i : i - (p.count - 1));
  return static_cast<float>(fused(steps, p.step, first ? p.start : p.stop));
}

}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels
