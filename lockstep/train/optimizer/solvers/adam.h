// Adam and AdamW, for custom training loops; see updates.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct AdamState {
  int64_t iteration = 0;  // number of updates so far, for the bias correction
  std::vector<Tensor> mean, square;
};

struct AdamOptions {
  double learning_rate = 0.001;
  double gradient_decay = 0.9;
  double squared_gradient_decay = 0.999;
  double epsilon = 1e-8;
  double l2 = 0;
  ThreadPool* pool = nullptr;
};

void adam_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                 const AdamOptions& options = {});
void adam_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 AdamState& state, const AdamOptions& options = {});

// Subtracts rate * l2 * w separately from the gradient.
void adamw_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                  const AdamOptions& options = {});
void adamw_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                  AdamState& state, const AdamOptions& options = {});

}  // namespace lockstep
