#include "lockstep/train/step/thread_executor.h"

#include <algorithm>

#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/train/step/shards.h"

namespace lockstep {

ThreadExecutor::ThreadExecutor(const Network& network, ShardProgram& program, ThreadPool& pool,
                               const ShardExecutorOptions& options, const StepProfile* profile)
    : ShardExecutor(network, program, options),
      pool_(pool),
      profile_(profile),
      ended_(static_cast<size_t>(pool.size())) {
  shards_by_worker_.assign(static_cast<size_t>(pool.size()), 0);
}

GroupSumOptions ThreadExecutor::sum_options() const {
  return {.count = program().gradient_layout().bytes / sizeof(float),
          .most_leaves = most_shards(),
          .leaf_bytes = program().summary_bytes(),
          .member_bytes =
              check_frequency() > 0 ? ShardCheck::kMostResults * digests() * sizeof(Digest) : 0,
          .order = options().deterministic ? TreeReduction::Order::tree
                                           : TreeReduction::Order::of_arrival};
}

void ThreadExecutor::make_sum() {
  sum_.reset();
  auto* const local = options().by_windows ? dynamic_cast<LocalGroup*>(&group()) : nullptr;
  sum_ = local != nullptr ? std::make_unique<GroupSum>(*local, pool_, sum_options())
                          : std::make_unique<GroupSum>(group(), pool_, sum_options());
  for (auto& summary : repeated_) summary.resize(program().summary_bytes());
}

bool ThreadExecutor::work_meanwhile(std::function<bool(bool ahead)> work) {
  meanwhile_ = std::move(work);
  return true;
}

std::byte* ThreadExecutor::gradient_sum() { return reinterpret_cast<std::byte*>(sum_->result()); }

const std::byte* ThreadExecutor::summary(const ShardIteration&, int64_t shard) const {
  return program().summary_bytes() > 0 ? sum_->leaf_metadata(shard) : nullptr;
}

void ThreadExecutor::compute(ShardIteration& it, int64_t i, int thread,
                             const ArithmeticMode& mode) {
  ShardTask task{.iteration = it.number,
                 .shard = shard_of(it, i),
                 .rows = {},
                 .worker = thread,
                 .repeat = static_cast<int>(std::max<int64_t>(i - it.own.count + 1, 0))};
  task.rows = it.shards[static_cast<size_t>(task.shard)];
  task.summary = task.repeat > 0 ? repeated_[task.repeat - 1].data() : sum_->leaf(task.shard);
  note(thread, task.shard);
  const ShardGradients gradients = program().compute(task);
  mode.check();
  corruption_point("gradients", it.number, task.shard, gradients.data,
                   program().gradient_layout().bytes);
  if (it.check && it.check->shard == task.shard) {
    write_digests(task, gradients.data,
                  reinterpret_cast<Digest*>(sum_->own_metadata()) +
                      static_cast<size_t>(task.repeat) * digests());
  }
  if (task.repeat == 0) {
    sum_->add(task.shard, reinterpret_cast<const float*>(gradients.data));
    ThreadTimer(profile_, thread)(&StepAccounts::sums);
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
  charge(&StepAccounts::waiting);
  const ArithmeticMode mode;
  // Other members must not wait for work that only the next iteration needs.
  const bool only_member = group().size() == 1 && until_idle;
  for (;;) {
    const bool ahead = busy.load(std::memory_order_relaxed) > 0;
    if ((!ahead && !only_member) || !meanwhile_(ahead)) break;
  }
  charge(&StepAccounts::meanwhile);
}

void ThreadExecutor::compute_one_by_one(ShardIteration& it) {
  program().prepare_shards();
  for_each(it, it.own.count + it.repeats, [&](int64_t i, int thread, const ArithmeticMode& mode) {
    compute(it, i, thread, mode);
  });
}

bool ThreadExecutor::can_bundle(const ShardIteration& it) const {
  if (!program().bundled() || it.own.count == 0 || it.check || corruption_is_set()) return false;
  for (int64_t i = 0; i < it.own.count; ++i) {
    if (is_alone(it.number, it.own.first + i)) return false;
  }
  return true;
}

void ThreadExecutor::set_bundles(const ShardIteration& it,
                                 const std::vector<GroupSum::Partial>& partials) {
  bundles_.iteration = it.number;
  bundles_.own = it.own;
  bundles_.rows.clear();
  bundles_.summaries.clear();
  bundles_.subtrees.clear();
  for (int64_t i = it.own.first; i < it.own.end(); ++i) {
    bundles_.rows.push_back(it.shards[static_cast<size_t>(i)]);
    bundles_.summaries.push_back(sum_->leaf(i));
  }
  for (const GroupSum::Partial& partial : partials) {
    bundles_.subtrees.push_back({partial.leaves, reinterpret_cast<std::byte*>(partial.sum)});
  }
  bundles_.threads = pool_.size();
  bundles_.bundles = cut_into_bundles(it.own, bundles_.rows.front().count, threads());
}

void ThreadExecutor::compute_bundles() {
  BundledProgram& program = *this->program().bundled();
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
  unfinished_ = leaves_sum_ && group().size() == 1;
  if (unfinished_) return;
  for_each_piece([&](int64_t piece, int thread) { program.add_gradients(piece, thread); });
}

void ThreadExecutor::for_each_piece(
    const std::function<void(int64_t piece, int thread)>& compute_piece) {
  const auto body = [&](int64_t piece, int thread) {
    const ArithmeticMode mode;
    compute_piece(piece, thread);
    mode.check();
  };
  for_each_in_place(pool_, pieces(), body,
                    [this](int thread, const std::atomic<int>& busy) { end(thread, busy); });
  unfinished_ = false;
}

void ThreadExecutor::compute(GradientUser& user,
                             const std::function<void(int64_t piece, int thread)>& then) {
  BundledProgram& program = *this->program().bundled();
  for_each_piece([&](int64_t piece, int thread) {
    program.use_gradients(piece, thread, user);
    then(piece, thread);
  });
}

void ThreadExecutor::add(ShardIteration& it) {
  ThreadTimer(profile_, 0)(&StepAccounts::plans);
  unfinished_ = false;
  sum_->begin(static_cast<int64_t>(it.shards.size()), it.partition);
  const auto begun = std::chrono::steady_clock::now();
  std::vector<GroupSum::Partial> partials;
  if (can_bundle(it)) partials = sum_->partials();
  if (partials.empty()) {  // also where shards are added in order of arrival
    compute_one_by_one(it);
  } else {
    set_bundles(it, partials);
    compute_bundles();
  }
  if (it.own.count > 0) {
    const std::chrono::duration<double> taken =
        *std::max_element(ended_.begin(), ended_.end()) - begun;
    const int64_t busy = std::min<int64_t>(it.own.count, pool_.used());
    shard_seconds_ = taken.count() * static_cast<double>(busy) / static_cast<double>(it.own.count);
  }
  ThreadTimer(profile_, 0)(&StepAccounts::waiting);
}

void ThreadExecutor::exchange(ShardIteration&, const TimeLimit& limit) { sum_->finish(limit); }

const Digest* ThreadExecutor::check_digests(int rank) const {
  return reinterpret_cast<const Digest*>(sum_->member_metadata(rank));
}

}  // namespace lockstep
