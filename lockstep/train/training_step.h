// One iteration: the mini-batch cut into shards, sums by the fixed tree, one update. Threads
// compute the shards (sharded_step.h), or a GPU's queues do (queued_step.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/thread_pool.h"
#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/parallel/comm/group_sum.h"
#include "lockstep/train/options.h"
#include "lockstep/train/shard_deaths.h"
#include "lockstep/train/solver.h"
#include "lockstep/train/step_ledger.h"

namespace lockstep {

// Shard j of V covers the rows [first, first + size) of the mini-batch.
struct ShardRange {
  int64_t first = 0, size = 0;
};

// V = ceil(n / shard_size) shards whose sizes differ by at most one, the larger ones first.
std::vector<ShardRange> cut_into_shards(int64_t n, int64_t shard_size);

// Runs body(shard, thread, mode) for every shard in [0, count), each thread in the law's
// floating-point mode, which the body checks at its end. The first `threads` of the pool (0: all)
// each begin with one shard, the rest go to whoever is free. After an exception, which is rethrown,
// no further shard is begun. `rest`, if given, is called by each of these threads when there is no
// further shard for it, in its own mode; `busy` says how many threads compute shards still.
void for_each_shard(
    ThreadPool& pool, int64_t count,
    const std::function<void(int64_t shard, int thread, const ArithmeticMode& mode)>& body,
    int threads = 0,
    const std::function<void(int thread, const std::atomic<int>& busy)>& rest = {});

struct StepResult {
  double loss_sum = 0;  // over observations
  int64_t correct = 0;  // classified right, where labels are learned

  template <class Archive>
  void serialize(Archive& archive) {
    archive(loss_sum, correct);
  }
};

struct FinishedIteration {
  StepResult sums;
  Digest digest;
};

// One thread at a time.
class TrainingStep {
 public:
  virtual ~TrainingStep() = default;

  // Computes as a member of a group from now on: the shards that its load gives it; sums and
  // statistics are those of all. `loads`: of each member, see deal_leaves(). `limit`: seconds that
  // a meeting with the others may take. Begins with the first meeting's memory untouched.
  virtual void join(std::unique_ptr<Group> group, std::vector<double> loads, double limit) = 0;
  // How sums travel between the members of a group, where that is not always the same way ("from
  // GPU to GPU"); else "".
  virtual std::string route() const { return {}; }
  // What a group's windows must hold (see GroupSum::window_bytes()).
  virtual GroupSumOptions sum_options() const = 0;
  // Every so many iterations a shard is computed again (shard_check.h); 0: never.
  virtual int64_t check_frequency() const = 0;
  // `watch` is told by each thread (or for each stream) when it begins a shard of the mini-batch
  // (from 0), and when it has ended one (-1).
  virtual void watch(std::function<void(int thread, int64_t shard)> watch) = 0;
  // These shards, each of an iteration, are computed one by one, while nothing else is, in place of
  // those that were named before: who ends this process then is known. Same bits.
  virtual void compute_alone(std::vector<ShardOfIteration> shards) = 0;
  // `work(ahead)` does a little of what else there is to do, and says whether there was any: called
  // by threads that have no further shard, with `ahead` as long as others have. False where no
  // thread would call it.
  virtual bool work_meanwhile(std::function<bool(bool ahead)> work) {
    (void)work;
    return false;
  }
  // Whether it takes images that are yet to be changed (MiniBatch::maps).
  virtual bool augments() const { return false; }
  // Of one shard, of the last mini-batch.
  virtual double shard_seconds() const = 0;

  // Losses and gradients of a mini-batch. `iteration` (from 1) keys the random numbers. Throws
  // ShardsDiffer where a check fails, in a group Timeout and WorkerLost; then learnables, states
  // and solver are as before.
  virtual StepResult compute(const MiniBatch& batch, int64_t iteration) = 0;
  // Applies them: solver, moving statistics, copies of learnables. Separate, so that a loss that
  // is not a number can stop before.
  virtual void apply(const UpdateScalars& scalars) = 0;
  // state_digest() after apply().
  virtual Digest digest(int64_t iteration) = 0;
  // compute(), apply() and digest() of an iteration in two parts, between which the next one may be
  // begun (none further). begin() is for iterations that may run ahead. finish() says what the
  // first of those that were begun gave; where its loss is not a finite number, learnables, states
  // and solver are as they were before it, there is no digest, and later ones are forgotten, as
  // they are where the step ends between the two parts. States are up to date where none is under
  // way.
  virtual bool runs_ahead(int64_t iteration) const {
    (void)iteration;
    return false;
  }
  virtual void begin(const MiniBatch& batch, const UpdateScalars& scalars);
  virtual FinishedIteration finish();
  // Shards that each thread, or queue, computed since the beginning.
  virtual const std::vector<int64_t>& shards_by_worker() const = 0;
  // After a training that a ledger follows: times the passes alone and sets their floors. At least
  // three times each, else half a second for each size of shards.
  virtual void time_passes() {}
};

// The step for the network's device. Keep the network, solver and pool alive. Of the resolved
// options mini_batch_size, shard_size, seed, streams, deterministic, gradient_threshold and its
// method, class_weights and freeze matter. `inputs`: u8 for images, f32 for arrays. `ledger`: where
// threads book their time; null: nowhere. Throws InvalidArgument for a network that does not fit
// its loss; Unsupported for a ledger on a GPU, and for a precision that the device does not
// compute with.
std::unique_ptr<TrainingStep> make_training_step(Network& network, Solver& solver, ThreadPool& pool,
                                                 const TrainingOptions& options,
                                                 DType inputs = DType::u8,
                                                 StepLedger* ledger = nullptr);

}  // namespace lockstep
