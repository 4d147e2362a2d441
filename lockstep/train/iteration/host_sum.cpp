#include "lockstep/train/iteration/host_sum.h"

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/reduce/partition.h"
#include "lockstep/train/iteration/shards.h"

namespace lockstep {
namespace {

// For a sum that is wanted in memory, where its blocks lie already.
class NoSink final : public GradientSink {
  std::span<const float* const> arrays(size_t) const override { return {}; }
  void use(const ParameterBlock&, const float*, int) override {}
};

}  // namespace

HostSum::HostSum(ShardProgram& program, ThreadPool& pool,
                 std::function<void(int thread, const std::atomic<int>& busy)> rest,
                 const IterationProfile* profile)
    : program_(program), pool_(pool), rest_(std::move(rest)), profile_(profile) {}

void HostSum::make(Group& group, LocalGroup* shared, const GroupSumOptions& options, double limit) {
  memory_.reset();
  sum_.reset();
  partition_.clear();
  lost_ = nullptr;
  divides_ = unfinished_ = false;
  group_ = &group;
  limit_ = limit;
  operand_bytes_ = options.operand_bytes;
  sum_ = shared != nullptr ? std::make_unique<GroupSum>(*shared, pool_, options)
                           : std::make_unique<GroupSum>(group, pool_, options);
}

void HostSum::begin(const ShardIteration& it) {
  if (lost_) std::rethrow_exception(lost_);
  iteration_ = it.number;
  divides_ = unfinished_ = false;
  sum_->begin(it.schedule);
}

std::optional<HostSum::Together> HostSum::together(
    const ShardIteration& it, const std::function<bool(const IndexRange& shards)>& can) {
  bundled_ = program_.bundled();
  Together how;
  const auto add = [&](const GroupSum::Partial& partial) {
    how.subtrees.push_back({partial.leaves, reinterpret_cast<std::byte*>(partial.sum)});
  };
  // All members decide alike.
  const IndexRange all{0, static_cast<int64_t>(it.shards.size())};
  divides_ = sum_->operands() != nullptr && can(all) &&
             bundled_->operand_bytes(it.shards) <= operand_bytes_;
  how.shards = divides_ ? all : it.own;
  if (divides_) {
    how.operands = sum_->operands();
    add({all, sum_->shared_sum()});
  } else if (can(it.own)) {
    for (const GroupSum::Partial& partial : sum_->partials()) add(partial);
  }
  // Not where shards are added in order of arrival.
  if (how.subtrees.empty()) return std::nullopt;
  return how;
}

void HostSum::have_operands() {
  unfinished_ = group_->size() == 1 || divides_;
  if (unfinished_) return;
  add_gradients();
}

void HostSum::add_gradients() {
  for_each_range(bundled_->ranges()->size(),
                 [&](int64_t range, int thread) { bundled_->add_gradients(range, thread); });
}

void HostSum::exchange(const ShardIteration& it, const TimeLimit& limit) {
  if (memory_) memory_->begin();
  if (!divides_) return sum_->finish(limit);
  divide(it.schedule->ranges);
  sum_->exchange_operands(limit);
}

void HostSum::for_each_range(int64_t count,
                             const std::function<void(int64_t i, int thread)>& compute_range) {
  const auto body = [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    compute_range(i, thread);
    mode.check();
  };
  for_each_in_place(pool_, count, body, rest_);
}

std::shared_ptr<const UpdateRanges> HostSum::ranges(const GradientSink& sink) {
  return unfinished_ ? bundled_->ranges() : in_memory().ranges(sink);
}

void HostSum::run(GradientSink& sink) {
  if (!unfinished_) return in_memory().run(sink);
  unfinished_ = false;
  if (divides_) return run_shared(sink);
  for_each_range(bundled_->ranges()->size(), [&](int64_t range, int thread) {
    bundled_->give_gradients(range, thread, sink);
    sink.end(range, thread);
  });
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
}

MemorySum& HostSum::in_memory() {
  if (unfinished_) {
    unfinished_ = false;
    NoSink none;
    divides_ ? run_shared(none) : add_gradients();
  }
  if (!memory_) memory_.emplace(pool_, program_.gradient_layout(), sum_->result(), profile_);
  return *memory_;
}

void HostSum::divide(const std::vector<IndexRange>& partition) {
  if (partition_ == partition) return;
  const UpdateRanges& ranges = *bundled_->ranges();
  std::vector<int64_t> sizes, shares;
  for (int64_t i = 0; i < ranges.size(); ++i) {
    sizes.push_back(0);
    for (const ParameterPart& part : ranges.of(i)) sizes.back() += part.elements.count;
  }
  for (const IndexRange& shards : partition) shares.push_back(shards.count);
  const std::vector<int> owners = divide_update_ranges(sizes, shares);
  own_.clear();
  of_others_.clear();
  for (int64_t i = 0; i < ranges.size(); ++i) {
    const bool own = owners[static_cast<size_t>(i)] == group_->rank();
    (own ? own_ : of_others_).push_back(i);
  }
  partition_ = partition;
}

// The rows of an update range lie one after another in the sum.
float* HostSum::shared_elements(const ParameterPart& part) const {
  const size_t offset = program_.gradient_layout().entries[part.parameter].offset;
  return sum_->shared_sum() + offset / sizeof(float) + part.elements.first;
}

void HostSum::fill_range(int64_t range) {
  for (const ParameterPart& part : bundled_->ranges()->of(range)) {
    fill_with_poison(shared_elements(part),
                     static_cast<size_t>(part.elements.count) * sizeof(float));
  }
}

void HostSum::give_published(int64_t range, GradientSink& sink, int thread) {
  for (const ParameterPart& part : bundled_->ranges()->of(range)) {
    const auto& [first, count] = part.elements;
    sink.use({part.parameter, first, 1, count, count, count}, shared_elements(part), thread);
  }
}

// Each member computes its own update ranges, and those of others that are not begun when its own
// are done. Meanwhile it uses what others have published.
void HostSum::run_shared(GradientSink& sink) {
  std::vector<std::atomic<bool>> used(static_cast<size_t>(bundled_->ranges()->size()));
  std::atomic<size_t> next{0};  // of the update ranges of others
  const auto use = [&](int64_t range, int thread) {
    if (used[static_cast<size_t>(range)].exchange(true)) return;
    give_published(range, sink, thread);
    sink.end(range, thread);
  };
  const auto compute = [&](int64_t range, int thread) {
    used[static_cast<size_t>(range)] = true;
    fail_point("update range", iteration_, range);
    bundled_->give_gradients(range, thread, sink);
    sum_->publish(range);
    sink.end(range, thread);
  };
  // No other member writes the update range, unless it has lost this one.
  const auto compute_claimed = [&](int64_t range, int thread) {
    if (poison() != Poison::none) fill_range(range);
    compute(range, thread);
  };
  for_each_range(static_cast<int64_t>(own_.size()), [&](int64_t i, int thread) {
    const int64_t range = own_[static_cast<size_t>(i)];
    if (sum_->claim(range)) compute_claimed(range, thread);
    for (size_t k = next; k < of_others_.size(); k = next) {
      if (!sum_->published(of_others_[k])) break;
      if (next.compare_exchange_strong(k, k + 1)) use(of_others_[k], thread);
    }
  });
  // A member without shards takes over no ranges, because it may be the slowest.
  if (!own_.empty()) {
    const auto others = static_cast<int64_t>(of_others_.size());
    for_each_range(others, [&](int64_t i, int thread) {
      const int64_t range = of_others_[static_cast<size_t>(others - 1 - i)];
      if (sum_->claim(range)) compute_claimed(range, thread);
    });
  }
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
  // This member has all operands and has begun to update. So it goes on without lost members.
  try {
    sum_->finish_update_ranges(TimeLimit(limit_));
  } catch (const WorkerLost&) {
    lost_ = std::current_exception();
  } catch (const Timeout&) {
    lost_ = std::current_exception();
  }
  for_each_range(bundled_->ranges()->size(), [&](int64_t range, int thread) {
    if (sum_->published(range)) return use(range, thread);
    compute(range, thread);
  });
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
}

}  // namespace lockstep
