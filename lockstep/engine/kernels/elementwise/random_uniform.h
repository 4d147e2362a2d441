// Keyed random numbers as values of ops.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst: n x ..., f32, uniform in [0, 1): multiples of 2^-24. Element e of the observation at row r
// of the mini-batch is word e of the random stream with the key (seed, draw, `draw`, iteration, r),
// without its lowest 8 bits. The kernel has no inputs and a forward pass alone.
struct RandomUniformProblem {
  Shape dst;
  uint64_t draw = 0;  // which of the network's draws
};

}  // namespace lockstep::kernels
