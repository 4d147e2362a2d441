// Softmax.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// exp(x) / (sum over channels of exp(x)). x: n x c or n x c x space. Throws InvalidArgument for
// other shapes. Thread-safe.
Tensor softmax(const Tensor& x);

// The op fuses with a cross-entropy that follows it.
OpPtr make_softmax();

}  // namespace lockstep::ops
