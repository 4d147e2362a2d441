// Softmax.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// exp(x) / sum over channels of exp(x), for x: n x c or n x c x h x w; else InvalidArgument.
// Thread-safe.
Tensor softmax(const Tensor& x);

// Fuses with a following cross-entropy.
OpPtr make_softmax();

}  // namespace lockstep::ops
