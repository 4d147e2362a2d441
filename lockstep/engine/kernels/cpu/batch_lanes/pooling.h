// Pooling of images in lanes (batch_lanes/layout.h). Thread-safe.
#pragma once

#include "lockstep/engine/kernels/windows/pooling.h"

namespace lockstep::kernels::cpu {

// Whether lanes_pooling() supports the problem: images in lanes, or row-major f32 images where
// lanes are chosen, because oneDNN pools those one element at a time; and a window along two axes
// without dilation. Windows of a maximum have at most 255 elements. bf16 windows must not overlap.
bool pools_in_lanes(const PoolingProblem& p);
Kernel lanes_pooling(const PoolingProblem& p);

}  // namespace lockstep::kernels::cpu
