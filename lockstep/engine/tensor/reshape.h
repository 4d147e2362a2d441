// How a change of shape reaches tapes, which this module does not know.
#pragma once

#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// Tensor::reshaped() without a record of it, for gradients and the implementation of ops.
Tensor reshaped_unrecorded(const Tensor& tensor, const Shape& shape);

// Called with a tensor and the result of its reshaped(). The first tape sets it. Thread-safe.
using ReshapeRecorder = void (*)(const Tensor& from, const Tensor& to);
void set_reshape_recorder(ReshapeRecorder recorder);

}  // namespace lockstep
