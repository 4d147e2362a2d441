// One iteration of a training: computes and adds shards (shard_executor.h), then updates once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/iteration/shard_executor.h"
#include "lockstep/train/iteration/updater.h"
#include "lockstep/train/programs/loss_program.h"
#include "lockstep/train/records/iteration_outcome.h"

namespace lockstep {

// One thread at a time. An iteration has two parts: begin() and finish(). If depth() permits it,
// the next iteration begins before the earlier one is finished.
class TrainingIteration {
 public:
  // The parts of an iteration; see make_training_iteration().
  struct Parts {
    Network& network;
    std::unique_ptr<MiniBatchProgram> program;
    std::unique_ptr<ShardExecutor> executor;         // of this program
    std::unique_ptr<Updater> updater;                // of the executor's sum
    std::unique_ptr<IterationProfile> profile = {};  // null: no profile is taken
    // Compares a shard of the first mini-batch, which the program has, with another computation of
    // it. Throws if they differ. Empty: nothing is compared.
    std::function<void(const MiniBatch& batch, const ShardTask& task)> compare_first = {};
  };
  // Compiles everything for mini-batches of this size. Plans for smaller ones are compiled on
  // demand.
  TrainingIteration(Parts parts, int64_t mini_batch_size);
  ~TrainingIteration();

  // For groups, loads, checks and watch functions.
  ShardExecutor& executor() { return *parts_.executor; }
  const ShardExecutor& executor() const { return *parts_.executor; }
  // Computes as a member of a group from now on; see ShardExecutor::join(). Discards iterations
  // under way. Accepts values that came from another member.
  void join(std::shared_ptr<Group> group, std::vector<double> loads, double limit);
  // Whether it accepts images that are not augmented yet (MiniBatch::maps).
  bool augments() const { return parts_.program->augments(); }

  // From now on no first shard is compared (Parts::compare_first).
  void leave_out_comparison() { parts_.compare_first = {}; }

  // How many iterations may be under way when this one begins: 0 or 1. An iteration of depth 0 is
  // finished before the next one begins.
  int64_t depth(int64_t iteration) const;
  // Begins the iteration of the scalars. The first one with a shard of this member compares it
  // before anything is updated. Throws InvalidArgument for a mini-batch that does not fit.
  void begin(const MiniBatch& batch, const UpdateScalars& scalars);
  // Finishes the oldest iteration under way and returns its number, sums and digest. If the loss is
  // not finite, nothing was applied, there is no digest, and later iterations are discarded. Throws
  // ShardsDiffer if a check fails, in a group Timeout and WorkerLost; parameters, states and solver
  // are then as before. States are up to date if no iteration is under way.
  IterationOutcome finish();

  // After a training with a profiler: times the passes alone and sets their floors. Takes half a
  // second for each shard size, but at least three runs.
  void time_passes(ThreadPool& pool);

 private:
  struct Begun {
    UpdateScalars scalars;
    bool applied = false;  // the update has been added
  };
  void apply(const UpdateScalars& scalars, size_t slot);
  void follow(const ShardIteration& it);
  void give_up();

  Parts parts_;
  std::deque<Begun> begun_;
};

}  // namespace lockstep
