// Pooling of images that lie in the lanes of vectors: see lanes_layout.h. Thread-safe.
#pragma once

#include "lockstep/engine/kernels/pooling.h"

namespace lockstep::kernels::cpu {

// For images in lanes and a window along two axes that is not dilated; of a maximum, one of 255
// elements at most.
bool pools_in_lanes(const PoolingProblem& p);
Kernel lanes_pooling(const PoolingProblem& p);

}  // namespace lockstep::kernels::cpu
