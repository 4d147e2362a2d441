// Normalisation of inputs.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// (x - offset) * factor, channel by channel, as f32. x: n x c x h x w or, for vectors of features,
// n x c, f32 or u8; offset, factor: c. Throws InvalidArgument where shapes do not fit. Thread-safe.
Tensor normalize_images(const Tensor& x, const Tensor& offset, const Tensor& factor);

OpPtr make_normalize_images();

}  // namespace lockstep::ops
