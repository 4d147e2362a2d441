// Loops of one's own: values and gradients of any loss. What to do with the gradients: updates.h.
//
//   SgdmState state;
//   while (queue.has_data()) {
//     ...
//     const auto [loss, gradients] = value_and_gradient(
//         [&] {
//           const Tensor scores = network.forward({images}, {.training = true});
//           return ops::mean(ops::cross_entropy(scores, labels));
//         },
//         network);
//     sgdm_update(network, gradients, state, {.learning_rate = 0.05});
//   }
//
// Sharded, such a loop keeps the law: the same bits for any number of threads.
//
//   ShardGroup group(network, {.threads = 4, .seed = 1});
//   const auto [loss, gradients] = sharded_value_and_gradient(
//       [](Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); },
//       {images, labels}, group, iteration);
//
// The state of a network (what follows mini-batches, such as moving statistics) is read and set by
// network.state(): its tensors are the network's own, copy_from() overwrites them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/train/profile.h"

namespace lockstep {

struct ValueAndGradients {
  double value = 0;               // of the loss
  std::vector<Tensor> gradients;  // row-major, on the device of what they are of
};

// What `loss` returns (one f32 number), and its gradients with respect to `tensors`; of a network:
// to its learnables, in their order. Runs under a tape of its own. Throws InvalidArgument for
// a loss that is not one number, Error for one that is not finite.
ValueAndGradients value_and_gradient(const std::function<Tensor()>& loss,
                                     std::span<const Tensor> tensors);
ValueAndGradients value_and_gradient(const std::function<Tensor()>& loss, const Network& network);

struct ShardGroupOptions {
  int threads = 0;         // 0: one for each processor
  int64_t shard_size = 0;  // at most so many observations in a shard; 0: 16
  uint64_t seed = 0;       // of random numbers (dropout)
  double limit = 600;      // seconds that members of a group may keep each other waiting
  bool profile = false;    // see ShardGroup::profile()
};

struct ShardForwardOptions {
  bool training = true;  // dropout on, batch statistics used and followed
  // Names of layers whose results are wanted instead of those of the output layers.
  std::vector<std::string> outputs = {};
};

class Shard;
using ShardLoss = std::function<Tensor(Shard&)>;

// Threads that compute shards of a network's mini-batches, those of this process or of all members
// of a group (Spmd::group()), with what is compiled for them: layouts
// of gradients are those that the largest shard of the first mini-batch asks for. Keep the network
// alive. One call at a time.
class ShardGroup {
 public:
  // Throws InvalidArgument for a network that is not initialized and for numbers below 0.
  explicit ShardGroup(Network& network, const ShardGroupOptions& options = {});
  // As a member of a group: it computes its share of the shards and has the sums of all. All
  // members have the same network with the same values, and call with the same mini-batches. The
  // bits are those of one process. Keep the group alive.
  ShardGroup(Network& network, const ShardGroupOptions& options, Group& members);
  ~ShardGroup();

  Network& network() const;
  // For updates, and whatever else is to be spread over the same threads between calls.
  ThreadPool& pool() const;
  // Shards that each thread computed since the beginning.
  const std::vector<int64_t>& shards_by_thread() const;
  // What a thread does that has no further shard, such as preparing the next mini-batch:
  // group.work_meanwhile([&](bool ahead) { return queue.help(ahead); }), of a MiniBatchQueue that
  // is `helped`. Called by several threads at once until it returns false, a few microseconds'
  // worth at a time. `ahead`: others are still at their shards, so there is time for what is not
  // wanted next, too; else the call waits for it, without limit (as a member of a group it does
  // not: it is not called then). Computes in the law's floating-point mode. What it throws,
  // sharded_value_and_gradient() throws. What it refers to must live until it is replaced. Empty:
  // nothing. Not during a call.
  void work_meanwhile(std::function<bool(bool ahead)> work);

  // Where the time of iterations went: profile_table() prints it. An iteration lasts from one call
  // of sharded_value_and_gradient() to end_iteration() or the next call, or to this one; what the
  // loop does after calls is on the first thread's account, and other threads wait meanwhile, also
  // where they update. Calls that failed are left out, and so is the first, unless it was the only
  // one. Times the passes of the network alone, for half a second for each size of shards,
  // so call it at the end. Nothing without ShardGroupOptions::profile or before the first call.
  std::optional<Profile> profile();
  // For profile(): what the loop does from here to the next call (a validation, a checkpoint) is no
  // part of an iteration. Without effect where there is no profile.
  void end_iteration();

 private:
  struct State;
  friend class Shard;
  friend ValueAndGradients sharded_value_and_gradient(const ShardLoss&, const std::vector<Tensor>&,
                                                      ShardGroup&, int64_t);
  std::unique_ptr<State> state_;
};

// Some rows of a mini-batch, which one thread computes. For that thread alone.
class Shard {
 public:
  // Position of the first row in the mini-batch, and the number of rows.
  int64_t first() const;
  int64_t size() const;
  // The shard's rows of tensor number i of the mini-batch: a view.
  const Tensor& operator[](size_t i) const;

  // As Network::forward() and forward_all(), by the plans of the group. May be called several
  // times, in every shard alike.
  Tensor forward(const Tensor& input, const ShardForwardOptions& options = {});
  std::vector<Tensor> forward_all(const std::vector<Tensor>& inputs,
                                  const ShardForwardOptions& options = {});
  // What random numbers depend on, for ops::dropout().
  const kernels::StepInfo& step() const;

 private:
  struct State;
  friend class ShardGroup;
  friend ValueAndGradients sharded_value_and_gradient(const ShardLoss&, const std::vector<Tensor>&,
                                                      ShardGroup&, int64_t);
  explicit Shard(State& state) : state_(state) {}
  State& state_;
};

// Mean over a mini-batch of the losses of its observations, and its gradients with respect to the
// learnables of the group's network. `batch`: tensors of equally many rows, on the CPU.
//
// The mini-batch is cut by position into V = ceil(rows / shard_size) shards. `loss` is called once
// for each, in several threads at once, and returns one f32 value for each of its rows. Losses,
// gradients and batch statistics of the shards are added by the fixed tree and divided once; then
// moving statistics follow. So the threads change no bit, as long as `loss` depends on nothing but
// the shard and things that do not change. It may use the network's learnables besides, ask this
// and other networks by predict(), and write what it likes to memory of its rows.
//
// A loss across observations (one value for a shard) has no sum over shards: it is taken only where
// V = 1. `iteration`, from 1, keys random numbers.
//
// With ops::softmax_cross_entropy() of the values in front of a network's softmax, gradients,
// statistics and loss have the bits of train(), which fuses the two in the same way.
//
// Throws InvalidArgument for tensors and losses that do not fit, and for losses that do not depend
// on the network; Unsupported for a network on a GPU; Error naming the observations where losses
// are not finite; what `loss` throws; over a group what collectives throw. Moving statistics stay
// as they were then.
ValueAndGradients sharded_value_and_gradient(const ShardLoss& loss,
                                             const std::vector<Tensor>& batch, ShardGroup& group,
                                             int64_t iteration);

}  // namespace lockstep
