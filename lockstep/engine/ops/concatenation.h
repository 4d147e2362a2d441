// Concatenation.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Tensors one behind the other along `axis` (1: channels); all other dimensions must agree, else
// InvalidArgument. Thread-safe.
Tensor concatenation(const std::vector<Tensor>& parts, int axis = 1);

OpPtr make_concatenation(int axis = 1);

}  // namespace lockstep::ops
