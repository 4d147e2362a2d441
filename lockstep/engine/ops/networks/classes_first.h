// Labels in the layout of scores.
#pragma once

#include <cstdint>

#include "lockstep/engine/ops/ops.h"

namespace lockstep::ops {

// Of labels n x space (i32): 1 for the class of each label, otherwise 0, n x classes x space. All
// classes of a label of ignore_index are 0. Throws InvalidArgument as one_hot().
template <Operand T>
T classes_first(const T& labels, int64_t classes, int64_t ignore_index);

}  // namespace lockstep::ops
