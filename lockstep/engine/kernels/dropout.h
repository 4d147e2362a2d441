// Dropout (Srivastava et al. 2014), keyed.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

// dst = src where kept, divided by the probability of keeping; 0 where dropped. Element e of the
// observation at row r of the mini-batch is dropped when the number e of the stream
// (seed, dropout, layer, iteration, r) is below `probability`.
struct DropoutProblem {
  TensorSpec src;  // n x ...
  double probability = 0.5;
  uint64_t layer = 0;  // key_from_text(name of the layer)
};

}  // namespace lockstep::kernels
