// Gradients of the weights and the bias of a fully connected layer, summed over shards by the fixed
// tree. Every element's leaf sums stay in registers, and those of the tree in the first cache, so
// that memory sees only results. Thread-safe.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels::cpu {

struct WeightsGradient {
  int64_t inputs = 0, units = 0;
  bool bias = true;
  DType dtype = DType::f32;  // of the operands; or bf16
};

// Reads: src (rows x inputs), diff dst (rows x units), both of the type. Writes, f32: diff weights
// (units x inputs), diff bias (units; only if `bias`). A leaf of the weights is a sum of products
// as in products.h, one of the bias a sum in double. Each of the three matrices has at most
// kMostInPanels elements (panels.h).
SumOverShards sum_of_weights_gradient(const WeightsGradient& p);

}  // namespace lockstep::kernels::cpu
