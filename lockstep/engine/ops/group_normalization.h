// Group normalisation (Wu, He 2018), with layer normalisation (Ba, Kiros, Hinton 2016) and instance
// normalisation (Ulyanov, Vedaldi, Lempitsky 2016) as its ends.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// y = scale * (x - mean) / sqrt(variance + epsilon) + shift, with the statistics of each
// observation and group of channels by itself, over the group's channels and space; the variance
// divides by the count. x: n x c or n x c x h x w; scale, shift: c. The c channels are cut into
// `groups` groups side by side: 1 is layer normalisation, c or group_per_channel instance
// normalisation. The gradient goes through the statistics. Throws InvalidArgument where shapes do
// not fit or groups does not divide c. Thread-safe.
inline constexpr int64_t group_per_channel = 0;
Tensor group_normalization(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           int64_t groups, double epsilon = 1e-5);

OpPtr make_group_normalization(int64_t groups, double epsilon);

}  // namespace lockstep::ops
