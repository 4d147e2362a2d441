// A shard of a mini-batch, as passed to a user-defined loss function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/tensor/tensor.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

struct ShardForwardOptions {
  bool training = true;  // dropout on, batch statistics used and followed
  // Layers whose outputs are returned instead of those of the output layers, by name.
  std::vector<std::string> outputs = {};
  // The shard's lengths of each input that is a sequence, as for Network::forward(). Empty: those
  // of the shard's own tensors (Shard::lengths()), or whole tensors in loops of users.
  std::vector<Tensor> lengths = {};
};

class FunctionProgram;

// Consecutive rows of a mini-batch that one thread computes. Only that thread may use it.
class Shard {
 public:
  // Position of the first row in the mini-batch, and the number of rows.
  int64_t first() const;
  int64_t size() const;
  // The shard's rows of tensor `i` of the mini-batch: a view, on the network's device. Throws
  // InvalidArgument if the mini-batch has no tensor `i`.
  const Tensor& operator[](size_t i) const;

  // Where train() calls a loss of the user: the valid steps of the rows of tensor `i` (i32). Throws
  // InvalidArgument if that is not a sequence.
  const Tensor& lengths(size_t i) const;

  // Same as Network::forward() and forward_all(), but uses plans compiled for shards. May be called
  // several times, with the same calls in every shard.
  Tensor forward(const Tensor& input, const ShardForwardOptions& options = {});
  std::vector<Tensor> forward_all(const std::vector<Tensor>& inputs,
                                  const ShardForwardOptions& options = {});
  // The step for random numbers, as ops::dropout() takes it.
  const RandomContext& step() const;

 private:
  struct State;
  friend class FunctionProgram;
  friend std::vector<float> evaluate_loss(Network&, const TrainingLoss&, const std::vector<Tensor>&,
                                          const std::vector<Tensor>&);
  explicit Shard(State& state) : state_(state) {}
  State& state_;
};

// Computes a loss for the rows of a mini-batch without recording it; forward() returns the outputs
// of prediction. Returns one value for each row. Thread-safe. Throws InvalidArgument if the loss
// does not have one value for each row.
std::vector<float> evaluate_loss(Network& network, const ShardLoss& loss,
                                 const std::vector<Tensor>& batch);
// The same with the lengths of each tensor of the mini-batch that is a sequence (others: an
// undefined tensor). The value of a row is a sum over its valid steps if the loss is by step.
std::vector<float> evaluate_loss(Network& network, const TrainingLoss& loss,
                                 const std::vector<Tensor>& batch,
                                 const std::vector<Tensor>& lengths);

}  // namespace lockstep
