// Computes the shards of mini-batches by the threads of this process or the streams of its device,
// alone or as a member of a group. Only this code cuts mini-batches into shards, partitions the
// shards by load, and computes, adds (by the fixed tree), checks and reports them.
//
//   executor.begin(rows, iteration);   // the program has the mini-batch
//   const ShardIteration& done = executor.finish();
//   ... executor.summary(done, shard), and the sum of gradients (host_sum.h, devices/device_sum.h)
//
// The trainer (training_iteration.h) and custom loops (custom_loop.h) use it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/reduce/group_sum.h"
#include "lockstep/parallel/reduce/partition.h"
#include "lockstep/train/iteration/shard_check.h"
#include "lockstep/train/iteration/shard_deaths.h"
#include "lockstep/train/programs/shard_program.h"

namespace lockstep {

struct ShardExecutorOptions {
  int64_t shard_size = 16;      // the most observations in a shard
  int64_t check_frequency = 0;  // iterations between repeated computations of a shard; 0: none
  bool deterministic = true;    // false: shards are added as they arrive
  // Members that share memory exchange sums through the windows of their LocalGroup, which must
  // have the size that sum_options() requires. Otherwise they exchange messages.
  bool by_windows = false;
};

// An iteration. Valid from begin() until the third begin() after it.
struct ShardIteration {
  int64_t number = 0;              // of the iteration, from 1
  std::vector<IndexRange> shards;  // observations of each shard
  // The shards of each member, and the additions of the sum over all.
  std::shared_ptr<const SumSchedule> schedule;
  IndexRange own;  // shards of this member
  std::optional<ShardCheck> check;
  int64_t repeats = 0;  // computations by this member for the check only
  size_t slot = 0;      // in [0, ShardExecutor::kSlots)

  int64_t observations() const { return shards.back().end(); }
};

// One thread at a time.
class ShardExecutor {
 public:
  static constexpr size_t kSlots = kIterationSlots;

  // The network and the program must stay alive.
  ShardExecutor(const Network& network, ShardProgram& program, const ShardExecutorOptions& options);
  virtual ~ShardExecutor() = default;
  ShardExecutor(const ShardExecutor&) = delete;
  ShardExecutor& operator=(const ShardExecutor&) = delete;

  // Compiles everything for mini-batches of `rows` observations or fewer.
  void prepare(int64_t rows);

  // Computes as a member of a group from now on: the shards that its load assigns to it. Sums and
  // summaries then cover all members. `loads`: of each member, see partition_shards(). `limit`: the
  // most seconds for an exchange with the other members. Iterations under way are abandoned.
  void join(std::shared_ptr<Group> group, std::vector<double> loads, double limit);
  Group& group() const { return *group_; }
  // The shards of each member by the number of shards. A later join() makes another object.
  std::shared_ptr<SumSchedules> schedules() const { return schedules_; }
  // How sums travel between members if there are several ways ("from GPU to GPU"); else "".
  virtual std::string route() const { return {}; }
  // The sizes that the windows of a group's members need (see GroupSum::window_bytes()).
  virtual GroupSumOptions sum_options() const = 0;
  int64_t check_frequency() const { return options_.check_frequency; }

  // Each thread (or, for each stream, the host) calls `watch` with the numbers of the shards that
  // it begins to compute together, and with an empty range when they are done.
  using Watch = std::function<void(int worker, const IndexRange& shards)>;
  void watch(Watch watch) { watch_ = std::move(watch); }
  // Sets the shards that are computed one by one, while no other shard is under way. If the process
  // ends during such a computation, the shard is known to be the cause.
  void compute_alone(std::vector<ShardOfIteration> shards) { alone_ = std::move(shards); }
  // Threads without a shard call `work(ahead)`, which does a small amount of other work and
  // returns whether there was any. `ahead` is true while other threads have shards. Returns false
  // if no thread would call it.
  virtual bool work_meanwhile(std::function<bool(bool ahead)> work) {
    (void)work;
    return false;
  }

  // Begins an iteration on a mini-batch of `rows` observations, which the program already has. On
  // the CPU this computes the iteration; on a device it adds the work to streams. At most kSlots -
  // 1 iterations may be under way.
  ShardIteration& begin(int64_t rows, int64_t iteration);
  // Before begin(), if nothing is under way: passes the first shard of this member, if it has one,
  // to `compute`, which may also compute it. Its memory is then the caller's. Returns whether
  // there was one.
  bool compute_besides(int64_t rows, int64_t iteration,
                       const std::function<void(const ShardTask&)>& compute);
  // Finishes the oldest iteration under way: its sums and summaries cover all members. Throws
  // ShardsDiffer if a check fails; in a group Timeout and WorkerLost.
  const ShardIteration& finish();
  // Whether iteration `number` may be begun before an earlier one is finished.
  virtual bool runs_ahead(int64_t number) const {
    (void)number;
    return false;
  }
  // On a device: assigns the work that was added to the default stream since begin() to the
  // iteration, so that finish() waits for it.
  virtual void mark(ShardIteration& it) { (void)it; }
  // Waits for all work and discards iterations that were begun and not finished. Returns the slot
  // of the last iteration before them, if there were any. A member of a group must join() again
  // before it begins another iteration.
  std::optional<size_t> abandon();
  // Same, for an iteration that was finished and all later ones, as if it had not begun.
  size_t abandon_from(const ShardIteration& it);
  size_t newest() const { return newest_; }

  // The summary of a shard of a finished iteration; null if summaries vary in size.
  virtual const std::byte* summary(const ShardIteration& it, int64_t shard) const = 0;

  // Seconds for one shard in the iteration finished last.
  double shard_seconds() const { return shard_seconds_; }
  // Number of shards that each thread or stream has computed, without repetitions.
  const std::vector<int64_t>& shards_by_worker() const { return shards_by_worker_; }
  int64_t most_shards() const { return most_shards_; }
  // The rows of a mini-batch that sums have memory for.
  int64_t most_rows() const { return most_rows_; }

 protected:
  const Network& network() const { return network_; }
  ShardProgram& program() const { return program_; }
  const ShardExecutorOptions& options() const { return options_; }
  double limit() const { return limit_; }
  // Whether the shard must be computed alone.
  bool is_alone(int64_t iteration, int64_t shard) const;
  void note(int worker, const IndexRange& shards) const {
    if (watch_) watch_(worker, shards);
  }
  void note(int worker, int64_t shard) const {
    note(worker, shard < 0 ? IndexRange{} : IndexRange{shard, 1});
  }
  size_t digests() const { return network_.parameters().size() + 1; }
  // Writes the digests of a computation of the checked shard: each parameter's gradient, then the
  // summary.
  void write_digests(const ShardTask& task, const std::byte* gradients, Digest* to) const;

  std::vector<int64_t> shards_by_worker_;
  double shard_seconds_ = 0;

 private:
  // Allocates memory for the sums of most_shards() shards, after prepare().
  virtual void make_sum() = 0;
  virtual int workers() const = 0;
  virtual void joined() {}
  // Computes the member's shards, or adds the work to streams.
  virtual void add(ShardIteration& it) = 0;
  // Waits until the summaries of this member's shards are complete.
  virtual void wait(ShardIteration& it) = 0;
  virtual void wait_for_all() {}
  // Exchanges sums and summaries with all members.
  virtual void exchange(ShardIteration& it, const TimeLimit& limit) = 0;
  // After exchange(): kMostResults digests of a member's computations of the checked shard; null if
  // they have to be requested.
  virtual const Digest* check_digests(int rank) const = 0;

  static size_t after(size_t slot) { return (slot + 1) % kSlots; }
  static size_t before(size_t slot) { return (slot + kSlots - 1) % kSlots; }
  void exchange_summaries(const ShardIteration& it, const TimeLimit& limit);

  const Network& network_;
  ShardProgram& program_;
  const ShardExecutorOptions options_;
  std::shared_ptr<Group> group_;
  std::shared_ptr<SumSchedules> schedules_;
  double limit_ = 1;
  Watch watch_;
  std::vector<ShardOfIteration> alone_;

  int64_t most_shards_ = 0, most_rows_ = 0;
  uint64_t layout_version_ = 0;
  bool has_sum_ = false;
  std::vector<ShardIteration> slots_{kSlots};
  size_t newest_ = 0;
  std::deque<size_t> under_way_;  // slots, oldest first
};

}  // namespace lockstep
