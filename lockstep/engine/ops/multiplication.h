// Multiplication.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Product of tensors of one shape, element by element, from the first to the last. The gradient of
// each is that of the product times all others, also where elements are 0. Throws InvalidArgument
// where shapes differ or there is none. Thread-safe.
Tensor multiplication(const std::vector<Tensor>& factors);

OpPtr make_multiplication();

}  // namespace lockstep::ops
