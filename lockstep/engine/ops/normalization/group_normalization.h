// Group normalisation (Wu, He 2018). Layer normalisation (Ba, Kiros, Hinton 2016) and instance
// normalisation (Ulyanov, Vedaldi, Lempitsky 2016) are its special cases.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// y = scale * (x - mean) / sqrt(variance + epsilon) + shift. The statistics are those of one
// observation and one group of channels, over the group's channels and space. The variance is
// divided by the count. x: n x c or n x c x space; scale, shift: c. The c channels are divided into
// `groups` groups of adjacent channels. 1 group is layer normalisation; c groups or
// group_per_channel is instance normalisation. The gradient flows through the statistics. Throws
// InvalidArgument if shapes do not fit or `groups` does not divide c. Thread-safe.
inline constexpr int64_t group_per_channel = 0;
Tensor group_normalization(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           int64_t groups, double epsilon = 1e-5);

OpPtr make_group_normalization(int64_t groups, double epsilon);

}  // namespace lockstep::ops
