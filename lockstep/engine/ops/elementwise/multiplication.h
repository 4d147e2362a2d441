// Multiplication.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Elementwise product of tensors with equal shapes, multiplied from first to last. The gradient of
// each factor is the output gradient times all other factors, also where elements are 0. Throws
// InvalidArgument if shapes differ or `factors` is empty. Thread-safe.
Tensor multiplication(const std::vector<Tensor>& factors);

OpPtr make_multiplication();

}  // namespace lockstep::ops
