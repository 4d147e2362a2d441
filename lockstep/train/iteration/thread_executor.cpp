#include "lockstep/train/iteration/thread_executor.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/reduce/partition.h"
#include "lockstep/train/iteration/shards.h"

namespace lockstep {

ThreadExecutor::ThreadExecutor(const Network& network, ShardProgram& program, ThreadPool& pool,
                               const ShardExecutorOptions& options, const IterationProfile* profile)
    : ShardExecutor(network, program, options),
      pool_(pool),
      profile_(profile),
      ended_(static_cast<size_t>(pool.size())) {
  shards_by_worker_.assign(static_cast<size_t>(pool.size()), 0);
}

GroupSumOptions ThreadExecutor::partial_sum_options() const {
  return {.count = program().gradient_layout().summed_bytes / sizeof(float),
          .most_leaves = most_shards(),
          .leaf_bytes = program().summary_bytes(),
          .member_bytes =
              check_frequency() > 0 ? ShardCheck::kMostResults * digests() * sizeof(Digest) : 0,
          .order = options().deterministic ? TreeReduction::Order::tree
                                           : TreeReduction::Order::of_arrival};
}

GroupSumOptions ThreadExecutor::sum_options() const {
  GroupSumOptions sum = partial_sum_options();
  if (program().bundled() && leaves_sum_ && options().deterministic) {
    sum.operand_bytes =
        program().bundled()->operand_bytes(cut_into_shards(most_rows(), options().shard_size));
    sum.update_ranges = update_ranges();
  }
  return sum;
}

void ThreadExecutor::make_sum() {
  sum_.reset();
  partition_.clear();
  lost_ = nullptr;
  auto* const local = options().by_windows ? dynamic_cast<LocalGroup*>(&group()) : nullptr;
  // Only members that share memory need operands there.
  const GroupSumOptions sum =
      local != nullptr && group().size() > 1 ? sum_options() : partial_sum_options();
  operand_bytes_ = sum.operand_bytes;
  sum_ = local != nullptr ? std::make_unique<GroupSum>(*local, pool_, sum)
                          : std::make_unique<GroupSum>(group(), pool_, sum);
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

bool ThreadExecutor::can_divide_update_ranges(const ShardIteration& it) const {
  const IndexRange all{0, static_cast<int64_t>(it.shards.size())};
  return leaves_sum_ && sum_->operands() != nullptr && can_bundle(it, all) &&
         program().bundled()->operand_bytes(it.shards) <= operand_bytes_;
}

void ThreadExecutor::set_bundles(const ShardIteration& it, const IndexRange& shards,
                                 const std::vector<GroupSum::Partial>& partials) {
  bundles_.iteration = it.number;
  bundles_.shards = shards;
  bundles_.rows.clear();
  bundles_.summaries.clear();
  bundles_.subtrees.clear();
  for (int64_t i = shards.first; i < shards.end(); ++i) {
    bundles_.rows.push_back(it.shards[static_cast<size_t>(i)]);
    bundles_.summaries.push_back(sum_->leaf(i));
  }
  for (const GroupSum::Partial& partial : partials) {
    bundles_.subtrees.push_back({partial.leaves, reinterpret_cast<std::byte*>(partial.sum)});
  }
  bundles_.threads = pool_.size();
  bundles_.operands = divides_update_ranges_ ? sum_->operands() : nullptr;
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
  unfinished_ = leaves_sum_ && (group().size() == 1 || divides_update_ranges_);
  if (unfinished_) return true;
  for_each_range(update_ranges(),
                 [&](int64_t range, int thread) { program.add_gradients(range, thread); });
  return true;
}

void ThreadExecutor::for_each_range(
    int64_t count, const std::function<void(int64_t i, int thread)>& compute_range) {
  const auto body = [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    compute_range(i, thread);
    mode.check();
  };
  for_each_in_place(pool_, count, body,
                    [this](int thread, const std::atomic<int>& busy) { end(thread, busy); });
}

void ThreadExecutor::compute(GradientUser& user,
                             const std::function<void(int64_t range, int thread)>& then) {
  unfinished_ = false;
  if (divides_update_ranges_) return compute_shared(user, then);
  BundledProgram& program = *this->program().bundled();
  for_each_range(update_ranges(), [&](int64_t range, int thread) {
    program.use_gradients(range, thread, user);
    then(range, thread);
  });
}

void ThreadExecutor::divide_update_ranges(const ShardIteration& it) {
  if (partition_ == it.partition) return;
  std::vector<int64_t> sizes, shares;
  for (int64_t i = 0; i < update_ranges(); ++i) {
    sizes.push_back(0);
    for (const ParameterPart& part : parts(i)) sizes.back() += part.elements.count;
  }
  for (const IndexRange& shards : it.partition) shares.push_back(shards.count);
  const std::vector<int> owners = lockstep::divide_update_ranges(sizes, shares);
  own_ranges_.clear();
  ranges_of_others_.clear();
  for (int64_t i = 0; i < update_ranges(); ++i) {
    const bool own = owners[static_cast<size_t>(i)] == group().rank();
    (own ? own_ranges_ : ranges_of_others_).push_back(i);
  }
  partition_ = it.partition;
}

// The rows of an update range lie one after another in the sum.
float* ThreadExecutor::shared_elements(const ParameterPart& part) const {
  const size_t offset = program().gradient_layout().entries[part.parameter].offset;
  return sum_->whole() + offset / sizeof(float) + part.elements.first;
}

void ThreadExecutor::fill_range(int64_t range) const {
  for (const ParameterPart& part : parts(range)) {
    fill_with_poison(shared_elements(part),
                     static_cast<size_t>(part.elements.count) * sizeof(float));
  }
}

void ThreadExecutor::use_published(int64_t range, GradientUser& user, int thread) {
  for (const ParameterPart& part : parts(range)) {
    const IndexRange& e = part.elements;
    user.use({part.parameter, e.first, 1, e.count, e.count, e.count}, shared_elements(part),
             thread);
  }
}

// Each member computes its own update ranges, and those of others that are not begun when its own
// are done. Meanwhile it uses what others have published.
void ThreadExecutor::compute_shared(GradientUser& user,
                                    const std::function<void(int64_t range, int thread)>& then) {
  BundledProgram& program = *this->program().bundled();
  std::vector<std::atomic<bool>> used(static_cast<size_t>(update_ranges()));
  std::atomic<size_t> next{0};  // of the update ranges of others
  const auto use = [&](int64_t range, int thread) {
    if (used[static_cast<size_t>(range)].exchange(true)) return;
    use_published(range, user, thread);
    then(range, thread);
  };
  const auto compute = [&](int64_t range, int thread) {
    used[static_cast<size_t>(range)] = true;
    fail_point("update range", bundles_.iteration, range);
    program.use_gradients(range, thread, user);
    sum_->publish(range);
    then(range, thread);
  };
  // No other member writes the update range, unless it has lost this one.
  const auto compute_claimed = [&](int64_t range, int thread) {
    if (poison() != Poison::none) fill_range(range);
    compute(range, thread);
  };
  for_each_range(static_cast<int64_t>(own_ranges_.size()), [&](int64_t i, int thread) {
    const int64_t range = own_ranges_[static_cast<size_t>(i)];
    if (sum_->claim(range)) compute_claimed(range, thread);
    for (size_t k = next; k < ranges_of_others_.size(); k = next) {
      if (!sum_->published(ranges_of_others_[k])) break;
      if (next.compare_exchange_strong(k, k + 1)) use(ranges_of_others_[k], thread);
    }
  });
  if (!own_ranges_.empty()) {
    const auto others = static_cast<int64_t>(ranges_of_others_.size());
    for_each_range(others, [&](int64_t i, int thread) {
      const int64_t range = ranges_of_others_[static_cast<size_t>(others - 1 - i)];
      if (sum_->claim(range)) compute_claimed(range, thread);
    });
  }
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
  // This member has all operands and has begun to update. So it goes on without lost members.
  try {
    sum_->finish_update_ranges(TimeLimit(limit()));
  } catch (const WorkerLost&) {
    lost_ = std::current_exception();
  } catch (const Timeout&) {
    lost_ = std::current_exception();
  }
  for_each_range(update_ranges(), [&](int64_t range, int thread) {
    if (sum_->published(range)) return use(range, thread);
    compute(range, thread);
  });
}

void ThreadExecutor::add(ShardIteration& it) {
  ThreadTimer(profile_, 0)(&IterationAccounts::plans);
  if (lost_) std::rethrow_exception(lost_);
  unfinished_ = false;
  sum_->begin(static_cast<int64_t>(it.shards.size()), it.partition);
  const auto begun = std::chrono::steady_clock::now();
  divides_update_ranges_ = can_divide_update_ranges(it);
  const IndexRange shards =
      divides_update_ranges_ ? IndexRange{0, static_cast<int64_t>(it.shards.size())} : it.own;
  std::vector<GroupSum::Partial> partials;
  if (divides_update_ranges_) {
    partials.push_back({shards, sum_->whole()});
  } else if (can_bundle(it, it.own)) {
    partials = sum_->partials();
  }
  const bool bundles = !partials.empty();  // not where shards are added in order of arrival
  if (bundles) set_bundles(it, shards, partials);
  if (!bundles || !compute_bundles()) compute_one_by_one(it);
  if (it.own.count > 0) {
    const std::chrono::duration<double> taken =
        *std::max_element(ended_.begin(), ended_.end()) - begun;
    const int64_t busy = std::min<int64_t>(it.own.count, pool_.used());
    shard_seconds_ = taken.count() * static_cast<double>(busy) / static_cast<double>(it.own.count);
  }
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
}

void ThreadExecutor::exchange(ShardIteration& it, const TimeLimit& limit) {
  if (!divides_update_ranges_) return sum_->finish(limit);
  divide_update_ranges(it);
  sum_->exchange(limit);
}

const Digest* ThreadExecutor::check_digests(int rank) const {
  return reinterpret_cast<const Digest*>(sum_->member_metadata(rank));
}

}  // namespace lockstep
