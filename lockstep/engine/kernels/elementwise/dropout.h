// Dropout (Srivastava et al. 2014) with keyed random numbers.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst = src / (1 - probability) for kept elements and 0 for dropped ones. Element e of the
// observation at row r of the mini-batch is dropped if number e of the random stream with the key
// (seed, dropout, layer, iteration, r) is below `probability`.
struct DropoutProblem {
  TensorSpec src;  // n x ...
  double probability = 0.5;
  uint64_t layer = 0;  // key_from_text(the layer's name)
};

}  // namespace lockstep::kernels
