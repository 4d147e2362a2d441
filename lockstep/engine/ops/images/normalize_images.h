// Normalisation of inputs.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// (x - offset) * factor for each channel, as f32. x: n x c or n x c x space, f32 or u8; offset,
// factor: c. Throws InvalidArgument if shapes do not fit. Thread-safe.
Tensor normalize_images(const Tensor& x, const Tensor& offset, const Tensor& factor);

OpPtr make_normalize_images();

}  // namespace lockstep::ops
