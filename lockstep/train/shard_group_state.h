// What a ShardGroup and its shards hold: see custom_loop.h.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/comm/deal.h"
#include "lockstep/parallel/comm/group_sum.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/gradient_sums.h"
#include "lockstep/train/shard_group_books.h"
#include "lockstep/train/shard_plans.h"

namespace lockstep {
namespace detail {

// The network compiled for so many observations.
struct ShardPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<Shape> outputs;
  std::vector<MovingStatistics> statistics;
};

struct PlanKey {
  int64_t n = 0;
  bool training = true, pixels = false, input_gradients = false;
  std::vector<std::string> outputs;
  auto operator<=>(const PlanKey&) const = default;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(n, training, pixels, input_gradients, outputs);
  }
};

// The batch statistics of one forward run.
struct FollowedRun {
  PlanKey key;
  int64_t rows = 0;
  std::vector<float> values;  // of each statistic first all means, then all variances

  template <class Archive>
  void serialize(Archive& archive) {
    archive(key, rows, values);
  }
};

// What a shard leaves behind.
struct ShardResult {
  double loss = 0;     // sum over rows
  bool whole = false;  // one value for all rows
  // Rows in the mini-batch: the first whose loss is no finite number, and the last; -1: none.
  int64_t not_finite = -1, last_not_finite = -1;
  double found = 0;  // at the first
  std::vector<FollowedRun> runs;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(loss, whole, not_finite, last_not_finite, found, runs);
  }
};

// A thread's own.
struct ShardWorker {
  int thread = 0;
  std::map<const ShardPlan*, std::vector<std::unique_ptr<PlanRun>>> runs;
  std::map<const ShardPlan*, int64_t> calls;  // forward runs, where a ledger is kept
};

[[noreturn]] inline void refuse_shards(const std::string& what, const std::string& hint = {}) {
  throw InvalidArgument("[sharded_value_and_gradient] " + what, hint);
}

}  // namespace detail

struct ShardGroup::State {
  State(Network& n, const ShardGroupOptions& options, Group* group);

  Network& network;
  const std::unique_ptr<Group> alone;
  Group& members;
  const double limit;
  ThreadPool pool;
  const int64_t shard_size;
  const uint64_t seed;

  // Made for these learnables: a network that is initialized anew has others.
  std::vector<uint64_t> learnables;
  std::mutex mutex;  // of `plans`
  std::map<detail::PlanKey, detail::ShardPlan> plans;
  GradientLayout layout;
  int64_t most_shards = 0;  // of the sum
  std::unique_ptr<GroupSum> sum;
  std::optional<GradientSums> sums;
  std::vector<detail::ShardWorker> workers;  // by thread
  std::vector<int64_t> shards_by_thread;
  std::unique_ptr<detail::ShardGroupBooks> books;
  std::function<bool(bool ahead)> meanwhile;

  // Those of the network as it is now.
  std::vector<uint64_t> learnable_ids() const;
  // Whether plans and runs are of them.
  bool is_present() const { return learnable_ids() == learnables; }
  void set_floors();
  void prepare(const std::vector<ShardRange>& shards, bool pixels);
  // What a thread without a further shard does, `busy` threads being at theirs.
  void rest(int thread, const std::atomic<int>& busy) const;
  void compare_calls(int64_t n, int64_t iteration);
  void exchange(std::vector<detail::ShardResult>& results, const std::vector<LeafRun>& runs);
  const detail::ShardPlan& plan(const detail::PlanKey& key);
  std::vector<Tensor> mean_gradients(double observations);
  void follow(const std::vector<detail::ShardResult>& results);
};

struct Shard::State {
  ShardGroup::State& group;
  detail::ShardWorker& worker;
  detail::ShardBookkeeper book;
  ShardRange range;
  kernels::StepInfo step;
  std::vector<Tensor> rows;
  // Stands for all learnables on the tape: its gradient is theirs, as plans lay it out.
  Tensor learnables;
  std::map<const detail::ShardPlan*, size_t> used;  // runs of this shard so far
  detail::ShardResult result;
  bool reached = false;  // by the gradient
};

}  // namespace lockstep
