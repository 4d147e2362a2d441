// Concatenation.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Joins tensors along `axis` (1: channels). Throws InvalidArgument if any other dimension differs.
// Thread-safe.
Tensor concatenation(const std::vector<Tensor>& parts, int axis = 1);

OpPtr make_concatenation(int axis = 1);

}  // namespace lockstep::ops
