// Pooling of images that lie in the lanes of vectors: see lanes_layout.h.
#pragma once

#include "lockstep/engine/kernels/pooling.h"

namespace lockstep::kernels::cpu {

// For a window along two axes that is not dilated and has at most 255 elements.
bool pools_in_lanes(const PoolingProblem& p);
Kernel lanes_pooling(const PoolingProblem& p);

}  // namespace lockstep::kernels::cpu
