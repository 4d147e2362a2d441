// How many values normalization ops take mean and variance of.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/graph/op.h"

namespace lockstep::ops {

// Of an op of batch normalization in training, for an input of n x c or n x c x space; none for
// other ops.
std::optional<int64_t> values_of_a_channel(const Op& op, const Shape& x);

// Of an op of group, layer or instance normalization; none for other ops.
std::optional<int64_t> values_of_a_group(const Op& op, const Shape& x);

}  // namespace lockstep::ops
