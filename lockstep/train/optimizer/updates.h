// Solver updates for custom training loops. The trainer uses the same functions.
//
//   SgdmState state;
//   for (...) sgdm_update(network, gradients, state, {.learning_rate = 0.05, .momentum = 0.9});
//
// A state is empty at first. The first update makes its arrays, filled with zeros, and later
// updates use them. A loop that saves its position must save the state too. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// States have an array for each parameter: "velocity", "mean" and "square" of the trainer's
// solvers.
struct SgdmState {
  std::vector<Tensor> velocity;
};
struct AdamState {
  int64_t iteration = 0;  // number of updates so far, for the bias correction
  std::vector<Tensor> mean, square;
};
struct RmspropState {
  std::vector<Tensor> square;
};

// See TrainingOptions for the fields. The default of l2 is 0 here, but 1e-4 in the trainer. `pool`
// divides the parameters among threads, without an effect on the bits.
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

// Update the parameters of a network with their gradients, in the order of network.parameters().
// learning_rate and l2 are multiplied by the parameter's factors. Throw InvalidArgument naming the
// parameter or the field, before any change, if gradients or states have a wrong number, shape,
// type or device, or an option is out of range.
void sgdm_update(Network& network, std::span<const Tensor> gradients, SgdmState& state,
                 const SgdmOptions& options = {});
void adam_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                 const AdamOptions& options = {});
// Subtracts rate * l2 * w separately from the gradient.
void adamw_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                  const AdamOptions& options = {});
void rmsprop_update(Network& network, std::span<const Tensor> gradients, RmspropState& state,
                    const RmspropOptions& options = {});

// The same for any row-major f32 tensors.
void sgdm_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 SgdmState& state, const SgdmOptions& options = {});
void adam_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 AdamState& state, const AdamOptions& options = {});
void adamw_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                  AdamState& state, const AdamOptions& options = {});
void rmsprop_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                    RmspropState& state, const RmspropOptions& options = {});

// For solvers: the update of one array, which all functions above use, and its scalars. `state`
// holds the arrays in the order of the state's fields. `gradient_sum` is row-major, summed over
// `observations`, and on the value's device, where the work is added to the default stream.
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
// `iteration` is from 1. `decoupled`: l2 as in adamw.
void update_by_adam(const UpdateTarget& target, std::span<const Tensor> state,
                    const float* gradient_sum, double observations, const AdamOptions& options,
                    int64_t iteration, bool decoupled);
void update_by_rmsprop(const UpdateTarget& target, std::span<const Tensor> state,
                       const float* gradient_sum, double observations,
                       const RmspropOptions& options);

}  // namespace lockstep
