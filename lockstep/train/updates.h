// What solvers do with gradients, for loops of one's own: the trainer's very updates.
//
//   SgdmState state;
//   for (...) sgdm_update(network, gradients, state, {.learning_rate = 0.05, .momentum = 0.9});
//
// A state begins empty: the first update makes its arrays, of zeros, and goes on with them from
// then on; saving a loop's position means saving it. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/engine/kernels/solver.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// By learnable. What is in here are the trainer's "velocity", "mean" and "square".
struct SgdmState {
  std::vector<Tensor> velocity;
};
struct AdamState {
  int64_t iteration = 0;  // updates so far: the bias correction depends on it
  std::vector<Tensor> mean, square;
};
struct RmspropState {
  std::vector<Tensor> square;
};

// TrainingOptions describes the fields. l2 is 0 unless it is given, 1e-4 is the trainer's. `pool`
// spreads pieces of the learnables over threads, without changing a bit.
struct SgdmOptions {
  double learning_rate = 0.01;
  double momentum = 0.9;
  double l2 = 0;
  ThreadPool* pool = nullptr;
};
struct AdamOptions {
  double learning_rate = 0.001;
  double gradient_decay = 0.9;
  double squared_gradient_decay = 0.999;
  double epsilon = 1e-8;
  double l2 = 0;
  ThreadPool* pool = nullptr;
};
struct RmspropOptions {
  double learning_rate = 0.001;
  double squared_gradient_decay = 0.9;
  double epsilon = 1e-8;
  double l2 = 0;
  ThreadPool* pool = nullptr;
};

// Change a network's learnables by the gradients of each, in the order of network.learnables();
// learning_rate and l2 count times the learnable's factors. Throw InvalidArgument, naming the
// learnable or the field, for gradients and states of other numbers, shapes, types or devices and
// for options out of range, before anything is changed.
void sgdm_update(Network& network, std::span<const Tensor> gradients, SgdmState& state,
                 const SgdmOptions& options = {});
void adam_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                 const AdamOptions& options = {});
// Takes rate * l2 * w off apart from the gradient.
void adamw_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                  const AdamOptions& options = {});
void rmsprop_update(Network& network, std::span<const Tensor> gradients, RmspropState& state,
                    const RmspropOptions& options = {});

// The same for any row-major tensors of f32.
void sgdm_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 SgdmState& state, const SgdmOptions& options = {});
void adam_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 AdamState& state, const AdamOptions& options = {});
void adamw_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                  AdamState& state, const AdamOptions& options = {});
void rmsprop_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                    RmspropState& state, const RmspropOptions& options = {});

// For solvers: the update of one array, where all of these meet, and its numbers. `state`: arrays
// in the order of the state's fields. `gradient_sum`: row-major, over `observations`, on the
// value's device, where the work is added to the default queue.
struct UpdateTarget {
  Tensor value;
  double rate_factor = 1, l2_factor = 1;
};
kernels::SgdmUpdate sgdm_numbers(const UpdateTarget& target, double observations,
                                 const SgdmOptions& options);
kernels::AdamUpdate adam_numbers(const UpdateTarget& target, double observations,
                                 const AdamOptions& options, int64_t iteration, bool decoupled);
kernels::RmspropUpdate rmsprop_numbers(const UpdateTarget& target, double observations,
                                       const RmspropOptions& options);
void update_by_sgdm(const UpdateTarget& target, std::span<const Tensor> state,
                    const float* gradient_sum, double observations, const SgdmOptions& options);
// `iteration` from 1. `decoupled`: l2 as adamw takes it.
void update_by_adam(const UpdateTarget& target, std::span<const Tensor> state,
                    const float* gradient_sum, double observations, const AdamOptions& options,
                    int64_t iteration, bool decoupled);
void update_by_rmsprop(const UpdateTarget& target, std::span<const Tensor> state,
                       const float* gradient_sum, double observations,
                       const RmspropOptions& options);

}  // namespace lockstep
