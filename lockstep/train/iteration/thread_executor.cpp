#include "lockstep/train/iteration/thread_executor.h"

#include <algorithm>

#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/train/iteration/shards.h"

namespace lockstep {

ThreadExecutor::ThreadExecutor(const Network& network, ShardProgram& program, ThreadPool& pool,
                               const ShardExecutorOptions& options, const IterationProfile* profile)
    : ShardExecutor(network, program, options),
      pool_(pool),
      profile_(profile),
      ended_(static_cast<size_t>(pool.size())),
      sum_(
          program, pool, [this](int thread, const std::atomic<int>& busy) { end(thread, busy); },
          profile) {
  shards_by_worker_.assign(static_cast<size_t>(pool.size()), 0);
}

GroupSumOptions ThreadExecutor::partial_sum_options() const {
  return {.count = program().gradient_layout().summed_bytes / sizeof(float),
          .most_leaves = most_shards(),
          .leaf_metadata_bytes = program().summary_bytes(),
          .member_metadata_bytes =
              check_frequency() > 0 ? ShardCheck::kMostResults * digests() * sizeof(Digest) : 0,
          .order = options().deterministic ? TreeReduction::Order::tree
                                           : TreeReduction::Order::of_arrival};
}

GroupSumOptions ThreadExecutor::sum_options() const {
  GroupSumOptions sum = partial_sum_options();
  if (program().bundled() && options().deterministic) {
    sum.operand_bytes =
        program().bundled()->operand_bytes(cut_into_shards(most_rows(), options().shard_size));
    sum.update_ranges = program().bundled()->ranges()->size();
  }
  return sum;
}

void ThreadExecutor::make_sum() {
  auto* const local = options().by_windows ? dynamic_cast<LocalGroup*>(&group()) : nullptr;
  // Only members that share memory need operands there.
  const bool shared = local != nullptr && group().size() > 1;
  sum_.make(group(), local, shared ? sum_options() : partial_sum_options(), limit());
  for (auto& summary : repeated_) summary.resize(program().summary_bytes());
}

bool ThreadExecutor::work_meanwhile(std::function<bool(bool ahead)> work) {
  meanwhile_ = std::move(work);
  return true;
}

const std::byte* ThreadExecutor::summary(const ShardIteration&, int64_t shard) const {
  return program().summary_bytes() > 0 ? sum_.group_sum().leaf_metadata(shard) : nullptr;
}

void ThreadExecutor::compute(ShardIteration& it, int64_t i, int thread,
                             const ArithmeticMode& mode) {
  ShardTask task{.iteration = it.number,
                 .shard = shard_of(it, i),
                 .rows = {},
                 .worker = thread,
                 .repeat = static_cast<int>(std::max<int64_t>(i - it.own.count + 1, 0))};
  task.rows = it.shards[static_cast<size_t>(task.shard)];
  task.summary = task.repeat > 0 ? repeated_[task.repeat - 1].data()
                                 : sum_.group_sum().own_leaf_metadata(task.shard);
  note(thread, task.shard);
  const ShardGradients gradients = program().compute(task);
  mode.check();
  corruption_point("gradients", it.number, task.shard, gradients.data,
                   program().gradient_layout().bytes);
  if (it.check && it.check->shard == task.shard) {
    write_digests(task, gradients.data,
                  reinterpret_cast<Digest*>(sum_.group_sum().own_member_metadata()) +
                      static_cast<size_t>(task.repeat) * digests());
  }
  if (task.repeat == 0) {
    sum_.group_sum().add(task.shard, reinterpret_cast<const float*>(gradients.data));
    ThreadTimer(profile_, thread)(&IterationAccounts::sums);
    ++shards_by_worker_[static_cast<size_t>(thread)];
  }
  note(thread, -1);
}

void ThreadExecutor::for_each(const ShardIteration& it, int64_t count, const Body& body) {
  std::vector<int64_t> together, one_by_one;
  for (int64_t i = 0; i < count; ++i) {
    (is_alone(it.number, shard_of(it, i)) ? one_by_one : together).push_back(i);
  }
  const auto body_of = [&](int64_t i, int thread, const ArithmeticMode& mode) {
    body(together[static_cast<size_t>(i)], thread, mode);
  };
  for_each_shard(pool_, static_cast<int64_t>(together.size()), body_of, threads(),
                 [this](int thread, const std::atomic<int>& busy) { end(thread, busy); });
  for (const int64_t i : one_by_one) {
    const ArithmeticMode mode;
    body(i, 0, mode);
    ended_[0] = std::chrono::steady_clock::now();
  }
}

int ThreadExecutor::threads() const {
  return static_cast<int>(std::min<int64_t>(pool_.used(), most_shards()));
}

void ThreadExecutor::end(int thread, const std::atomic<int>& busy) {
  ended_[static_cast<size_t>(thread)] = std::chrono::steady_clock::now();
  rest(thread, busy);
}

void ThreadExecutor::rest(int thread, const std::atomic<int>& busy, bool until_idle) const {
  if (!meanwhile_) return;
  const ThreadTimer charge(profile_, thread);
  charge(&IterationAccounts::waiting);
  const ArithmeticMode mode;
  // Other members must not wait for work that only the next iteration needs.
  const bool only_member = group().size() == 1 && until_idle;
  for (;;) {
    const bool ahead = busy.load(std::memory_order_relaxed) > 0;
    if ((!ahead && !only_member) || !meanwhile_(ahead)) break;
  }
  charge(&IterationAccounts::meanwhile);
}

void ThreadExecutor::compute_before(const ShardIteration& it) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < it.own.count + it.repeats; ++i) {
    if (!is_alone(it.number, shard_of(it, i))) numbers.push_back(shard_of(it, i));
  }
  const int64_t tasks = program().begin_shards(it.shards, numbers);
  if (tasks == 0) return;
  const auto body = [&](int64_t task, int thread, const ArithmeticMode& mode) {
    note(thread, program().shards_before(task));
    program().compute_before(task, it.number, thread);
    mode.check();
    note(thread, IndexRange{});
  };
  for_each_shard(pool_, tasks, body, threads(),
                 [this](int thread, const std::atomic<int>& busy) { rest(thread, busy, false); });
  program().end_before();
}

void ThreadExecutor::compute_one_by_one(ShardIteration& it) {
  program().prepare_shards();
  compute_before(it);
  for_each(it, it.own.count + it.repeats, [&](int64_t i, int thread, const ArithmeticMode& mode) {
    compute(it, i, thread, mode);
  });
}

bool ThreadExecutor::can_bundle(const ShardIteration& it, const IndexRange& shards) const {
  if (!program().bundled() || shards.count == 0 || it.check || corruption_is_set()) return false;
  for (int64_t i = shards.first; i < shards.end(); ++i) {
    if (is_alone(it.number, i)) return false;
  }
  return true;
}

void ThreadExecutor::set_bundles(const ShardIteration& it, HostSum::Together how) {
  bundles_.iteration = it.number;
  bundles_.shards = how.shards;
  bundles_.rows.clear();
  bundles_.summaries.clear();
  bundles_.subtrees = std::move(how.subtrees);
  for (int64_t i = how.shards.first; i < how.shards.end(); ++i) {
    bundles_.rows.push_back(it.shards[static_cast<size_t>(i)]);
    bundles_.summaries.push_back(sum_.group_sum().own_leaf_metadata(i));
  }
  bundles_.threads = pool_.size();
  bundles_.operands = how.operands;
  bundles_.bundles.clear();
  if (it.own.count > 0) {
    bundles_.bundles = cut_into_bundles(it.own, bundles_.rows.front().count, threads());
  }
}

bool ThreadExecutor::compute_bundles() {
  BundledProgram& program = *this->program().bundled();
  const std::vector<int64_t> before = shards_by_worker_;
  program.prepare_bundles(bundles_, threads());
  const auto compute_bundle = [&](int64_t g, int thread, const ArithmeticMode& mode) {
    const IndexRange& shards = bundles_.bundles[static_cast<size_t>(g)];
    note(thread, shards);
    program.compute_bundle(static_cast<size_t>(g), thread);
    mode.check();
    shards_by_worker_[static_cast<size_t>(thread)] += shards.count;
    note(thread, IndexRange{});
  };
  // Gradients need the rows of all threads, so nothing else may hold a thread up.
  const auto between = [this](int thread, const std::atomic<int>& busy) {
    ended_[static_cast<size_t>(thread)] = std::chrono::steady_clock::now();
    rest(thread, busy, false);
  };
  for_each_shard(pool_, static_cast<int64_t>(bundles_.bundles.size()), compute_bundle, threads(),
                 between);
  if (!program.have_operands()) {
    shards_by_worker_ = before;
    return false;
  }
  sum_.have_operands();
  return true;
}

void ThreadExecutor::add(ShardIteration& it) {
  ThreadTimer(profile_, 0)(&IterationAccounts::plans);
  sum_.begin(it);
  const auto begun = std::chrono::steady_clock::now();
  auto how = sum_.together(it, [&](const IndexRange& shards) { return can_bundle(it, shards); });
  const bool together = how.has_value();
  if (together) set_bundles(it, *std::move(how));
  if (!together || !compute_bundles()) compute_one_by_one(it);
  if (it.own.count > 0) {
    const std::chrono::duration<double> taken =
        *std::max_element(ended_.begin(), ended_.end()) - begun;
    const int64_t busy = std::min<int64_t>(it.own.count, pool_.used());
    shard_seconds_ = taken.count() * static_cast<double>(busy) / static_cast<double>(it.own.count);
  }
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
}

void ThreadExecutor::exchange(ShardIteration& it, const TimeLimit& limit) {
  sum_.exchange(it, limit);
}

const Digest* ThreadExecutor::check_digests(int rank) const {
  return reinterpret_cast<const Digest*>(sum_.group_sum().member_metadata(rank));
}

}  // namespace lockstep
