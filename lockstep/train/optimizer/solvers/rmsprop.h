// RMSProp, for custom training loops; see updates.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct RmspropState {
  std::vector<Tensor> square;
};

struct RmspropOptions {
  double learning_rate = 0.001;
  double squared_gradient_decay = 0.9;
  double epsilon = 1e-8;
  double l2 = 0;
  ThreadPool* pool = nullptr;
};

void rmsprop_update(Network& network, std::span<const Tensor> gradients, RmspropState& state,
                    const RmspropOptions& options = {});
void rmsprop_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                    RmspropState& state, const RmspropOptions& options = {});

}  // namespace lockstep
