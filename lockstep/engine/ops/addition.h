// Addition.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Sum of tensors of one shape, from the first to the last. Throws InvalidArgument where shapes
// differ or there is none. Thread-safe.
Tensor addition(const std::vector<Tensor>& terms);

OpPtr make_addition();

}  // namespace lockstep::ops
