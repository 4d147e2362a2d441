// Solver updates for custom training loops. The trainer uses the same arithmetic.
//
//   SgdmState state;
//   for (...) sgdm_update(network, gradients, state, {.learning_rate = 0.05, .momentum = 0.9});
//
// <solver>_update() updates the parameters of a network with their gradients, in the order of
// network.parameters(), or any row-major f32 tensors. learning_rate and l2 are multiplied by the
// parameter's factors. Throws InvalidArgument naming the parameter or the field, before any change,
// if gradients or states have a wrong number, shape, type or device, or an option is out of range.
//
// A state is empty at first. The first update makes its arrays, one for each parameter and filled
// with zeros, and later updates use them: "velocity", "mean" and "square" of the trainer's solvers.
// save_loop() (custom_loop.h) saves states with the network. Not thread-safe.
//
// See TrainingOptions for the fields of the options. The default of l2 is 0 here, but 1e-4 in the
// trainer. `pool` divides the parameters among threads, without an effect on the bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/engine/nn/network.h"

namespace lockstep {

class ThreadPool;

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

struct SgdmOptions {
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
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

void sgdm_update(Network& network, std::span<const Tensor> gradients, SgdmState& state,
                 const SgdmOptions& options = {});
void adam_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                 const AdamOptions& options = {});
void rmsprop_update(Network& network, std::span<const Tensor> gradients, RmspropState& state,
                    const RmspropOptions& options = {});
// adamw_update() subtracts rate * l2 * w separately from the gradient.
void adamw_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                  const AdamOptions& options = {});

void sgdm_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 SgdmState& state, const SgdmOptions& options = {});
void adam_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 AdamState& state, const AdamOptions& options = {});
void adamw_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                  AdamState& state, const AdamOptions& options = {});
void rmsprop_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                    RmspropState& state, const RmspropOptions& options = {});

}  // namespace lockstep
