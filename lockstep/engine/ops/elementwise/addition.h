// Addition.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Sum of tensors with equal shapes, added from first to last. Throws InvalidArgument if shapes
// differ or `terms` is empty. Thread-safe.
Tensor addition(const std::vector<Tensor>& terms);

OpPtr make_addition();

}  // namespace lockstep::ops
