// Stochastic gradient descent with momentum, for custom training loops; see updates.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct SgdmState {
  std::vector<Tensor> velocity;
};

struct SgdmOptions {
  double learning_rate = 0.01;
  double momentum = 0.9;
  double l2 = 0;
  ThreadPool* pool = nullptr;
};

void sgdm_update(Network& network, std::span<const Tensor> gradients, SgdmState& state,
                 const SgdmOptions& options = {});
void sgdm_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 SgdmState& state, const SgdmOptions& options = {});

}  // namespace lockstep
