// Training loops written by the user: values and gradients of any loss. updates.h applies the
// gradients.
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
// A sharded loop keeps the law: the bits are the same for any number of threads and workers.
//
//   ShardGroup group(network, {.threads = 4, .seed = 1});
//   const auto [loss, gradients] = sharded_value_and_gradient(
//       [](Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); },
//       {images, labels}, group, iteration);
//
// save_loop() and load_loop() stop a loop and continue it with the same bits.
//
// The states of a network, such as moving statistics, are read and set by network.state(): the
// tensors there are the network's, and copy_from() overwrites them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/profile/profile.h"
#include "lockstep/train/programs/shard.h"

namespace lockstep {

class FileSystem;  // local_files()
class Group;       // Spmd::group()
class ThreadPool;
struct SgdmState;  // updates.h
struct AdamState;
struct RmspropState;

struct ValueAndGradients {
  double value = 0;               // of the loss
  std::vector<Tensor> gradients;  // row-major, each on the device of its parameter
};

// Returns the value of `loss` (one f32 number) and its gradients with respect to `tensors`, or to
// the parameters of a network in their order. Runs under its own tape. Throws InvalidArgument if
// the loss is not one number, and Error if it is not finite.
ValueAndGradients value_and_gradient(const std::function<Tensor()>& loss,
                                     std::span<const Tensor> tensors);
ValueAndGradients value_and_gradient(const std::function<Tensor()>& loss, const Network& network);

// TrainingOptions describes fields of the same names.
struct ShardGroupOptions {
  int threads = 0;         // on the CPU; 0: one for each processor
  int64_t shard_size = 0;  // the most observations in a shard; 0: as in TrainingOptions
  uint64_t seed = 0;       // of random numbers (dropout)
  Precision precision = Precision::fp32;
  double loss_scale = 0;  // 0: 128 for fp16, else 1
  bool deterministic = true;
  // How many shards each member of a group gets relative to the others, by rank; empty: equal
  // shares. A member with 0 gets none.
  std::vector<double> loads = {};
  // Interval in iterations at which one shard is computed again, by other members if there are any;
  // all must get the same bits. 0: never. The loss is called again for it. A GPU ignores it unless
  // `deterministic`.
  int64_t check_frequency = 0;
  double limit = 600;    // seconds that members of a group may keep each other waiting
  bool profile = false;  // see ShardGroup::profile()
};

// Computes shards of a network's mini-batches: by threads of this process or by the network's
// device, alone or as a member of a group (Spmd::group()). Holds what is compiled for them. Keep
// the network alive. One call at a time.
class ShardGroup {
 public:
  // Throws InvalidArgument for a network that is not initialized and for options out of range;
  // Unsupported for a profile on a GPU, and for a precision that the device does not compute with.
  explicit ShardGroup(Network& network, const ShardGroupOptions& options = {});
  // As a member of a group: it computes its share of the shards and has the sums of all. All
  // members have the same network with the same values, and call with the same mini-batches. The
  // bits are those of one process. Keep the group alive.
  ShardGroup(Network& network, const ShardGroupOptions& options, Group& members);
  ~ShardGroup();

  Network& network() const;
  // For updates, and other work that is to be spread over the same threads between calls.
  ThreadPool& pool() const;
  // Shards that each thread (GPU: stream) has computed since the beginning.
  const std::vector<int64_t>& shards_by_thread() const;
  // Work for threads that have no further shard, such as preparing the next mini-batch:
  // group.work_meanwhile([&](bool ahead) { return queue.help(ahead); }), of a MiniBatchQueue that
  // is `helped`. Several threads call it at once until it returns false; each call should take a
  // few microseconds. `ahead` is true while other threads still compute shards, so there is time
  // for work that is not needed next. Otherwise the call waits for the work, without limit; a
  // member of a group is not called then. It runs in the law's floating-point mode.
  // sharded_value_and_gradient() throws what it throws. An empty function means no work. Must not
  // be called during a call. A GPU does not call it.
  void work_meanwhile(std::function<bool(bool ahead)> work);

  // Where the time of iterations went; profile_table() prints it. An iteration lasts from one call
  // of sharded_value_and_gradient() to end_iteration() or the next call, or to this one. What the
  // loop does after calls is charged to the first thread, while other threads wait, also where they
  // update. Calls that failed are left out, and so is the first, unless it was the only one. Times
  // the passes of the network alone, for half a second for each size of shards, so call it at the
  // end. Empty without ShardGroupOptions::profile or before the first call.
  std::optional<Profile> profile();
  // For profile(): what the loop does from here to the next call, such as a validation, is not part
  // of an iteration. Has no effect without a profile.
  void end_iteration();

 private:
  struct State;
  friend ValueAndGradients sharded_value_and_gradient(const ShardLoss&, const std::vector<Tensor>&,
                                                      ShardGroup&, int64_t);
  std::unique_ptr<State> state_;
};

// Returns the mean over a mini-batch of the losses of its observations, and its gradients with
// respect to the parameters of the group's network. `batch`: tensors of equally many rows, on the
// CPU or on the network's device.
//
// The mini-batch is cut by position into V = ceil(rows / shard_size) shards. `loss` is called once
// for each, by several threads at once, and returns one f32 value for each of its rows. Losses,
// gradients and batch statistics of the shards are added by the fixed tree and divided once. Then
// the moving statistics are updated. Threads and workers change no bit as long as `loss` depends on
// nothing but the shard and values that do not change. It may use the network's parameters
// directly, call predict() of this and other networks, and write to memory of its rows. If it runs
// dense layers differently from its first shards, it is called again for the mini-batch.
//
// On a GPU one thread calls `loss` for one shard after the other, but the work of different shards
// runs at the same time, on several streams. A tensor that `loss` keeps for later shards must
// therefore be made before this call, or when the group calls a loss for the first time. Otherwise
// another stream may read it before it has its values.
//
// A loss across observations (one value for a shard, or values that depend on other rows) has no
// sum over shards: it is accepted only where V = 1. Where V > 1, each function and each lambda is
// tried at its first call: it is called twice more for one shard, once with another first row, and
// a network with layers that normalize over the shard predicts then. Random numbers depend on
// `iteration`, which counts from 1.
//
// With ops::softmax_cross_entropy() of the values in front of a network's softmax, gradients,
// statistics and loss have the bits of train(), which fuses the two in the same way.
//
// Throws InvalidArgument for tensors and losses that do not fit, and for losses that do not depend
// on the network; Error naming the observations whose losses are not finite; ShardsDiffer where a
// check fails; what `loss` throws; over a group what collectives throw. Moving statistics are
// unchanged then.
ValueAndGradients sharded_value_and_gradient(const ShardLoss& loss,
                                             const std::vector<Tensor>& batch, ShardGroup& group,
                                             int64_t iteration);

// A network that a loop trains, and the state of the solver that updates it.
struct LoopPart {
  Network& network;
  std::variant<SgdmState*, AdamState*, RmspropState*> solver;
  std::string name = "network";  // distinguishes the networks of a loop that trains several
};

// How far a loop is.
struct LoopPosition {
  int64_t iteration = 0;         // the last finished iteration
  int64_t epoch = 0, batch = 0;  // of the next mini-batch: MiniBatchQueue::epoch() and batch()
};

// save_loop() writes one file with everything that a loop needs to continue: parameters, network
// states, states by row, names of columns and solver states of all parts, and the position.
// load_loop() sets them, makes states by row if the loop had made them, and returns the position. A
// loop that continues with the same data and options has the bits of one that was never stopped, on
// any number of threads and workers, and on any device of the same kind:
//
//   AdamState state;
//   LoopPosition at;
//   if (local_files().exists(path)) at = load_loop(local_files(), path, {{network, &state}});
//   MiniBatchQueue queue(images, options, at.epoch, at.batch);
//   for (int64_t iteration = at.iteration + 1; queue.has_data(); ++iteration) {
//     ...
//     adam_update(network, gradients, state);
//     save_loop(local_files(), path, {iteration, queue.epoch(), queue.batch()},
//               {{network, &state}});
//   }
//
// Call them between two iterations. Of the members of a group, one saves and all load. The file is
// written atomically: after a crash it has the old or the new content. Missing folders are made.
//
// Both throw FileError. They throw InvalidArgument for no parts, and naming the part if its network
// is not initialized, its state is missing or has another number of parameters, or its name is
// empty, contains '/' or occurs twice. load_loop() throws DataError naming the file if the file is
// damaged or not a saved loop, and InvalidArgument naming the difference if it has other parts,
// networks, solvers (adam and adamw have the same state) or rows, or was written with other
// numerics, unless `allow_other_numerics`. Nothing has changed then.
void save_loop(FileSystem& files, const std::string& path, const LoopPosition& position,
               const std::vector<LoopPart>& parts);
LoopPosition load_loop(FileSystem& files, const std::string& path,
                       const std::vector<LoopPart>& parts, bool allow_other_numerics = false);

}  // namespace lockstep
