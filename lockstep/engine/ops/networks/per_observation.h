// What losses that are made of other ops have in common.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/engine/ops/ops.h"

namespace lockstep::ops {

// Throws InvalidArgument, naming the op, unless both are n x ... of one shape, with elements in an
// observation.
void check_pair(std::string_view op, const Shape& prediction, const Shape& target);

// The axes of an observation: all but the first.
std::vector<int> observation_axes(const Shape& x);

// Sum and mean over each observation: n values.
template <Operand T>
T sum_of_observations(const T& x) {
  return x.shape().rank() == 1 ? x : sum(x, observation_axes(x.shape()));
}
template <Operand T>
T mean_of_observations(const T& x) {
  return x.shape().rank() == 1 ? x : mean(x, observation_axes(x.shape()));
}

}  // namespace lockstep::ops
