#include "lockstep/train/iteration/shard_executor.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/train/iteration/shards.h"

namespace lockstep {

ShardExecutor::ShardExecutor(const Network& network, ShardProgram& program,
                             const ShardExecutorOptions& options)
    : network_(network),
      program_(program),
      options_(options),
      group_(std::move(LocalGroup::of_threads({.size = 1})[0])),
      schedules_(std::make_shared<SumSchedules>(std::vector<double>{1})) {
  for (size_t i = 0; i < kSlots; ++i) slots_[i].slot = i;
}

void ShardExecutor::prepare(int64_t rows) {
  const auto shards = cut_into_shards(rows, options_.shard_size);
  const auto count = static_cast<int64_t>(shards.size());
  // Threads and streams in excess of the shards would be idle.
  const auto useful =
      std::min<int64_t>({workers(), program_.most_workers(), std::max(most_shards_, count)});
  program_.prepare(shards, static_cast<int>(useful));
  if (has_sum_ && count <= most_shards_ && layout_version_ == program_.layout_version()) return;
  most_shards_ = std::max(most_shards_, count);
  most_rows_ = std::max(most_rows_, rows);
  layout_version_ = program_.layout_version();
  make_sum();
  has_sum_ = true;
}

void ShardExecutor::join(std::shared_ptr<Group> group, std::vector<double> loads, double limit) {
  abandon();
  group_ = std::move(group);
  schedules_ = std::make_shared<SumSchedules>(std::move(loads));
  limit_ = limit;
  if (!has_sum_) return;
  joined();
  make_sum();
}

bool ShardExecutor::is_alone(int64_t iteration, int64_t shard) const {
  return std::find(alone_.begin(), alone_.end(), ShardOfIteration{iteration, shard}) !=
         alone_.end();
}

void ShardExecutor::write_digests(const ShardTask& task, const std::byte* gradients,
                                  Digest* to) const {
  for (const auto& entry : program_.gradient_layout().entries) {
    *to++ = digest_of(gradients + entry.offset, entry.spec.bytes());
  }
  *to = program_.summary_digest(task);
}

ShardIteration& ShardExecutor::begin(int64_t rows, int64_t iteration) {
  prepare(rows);
  newest_ = after(newest_);
  ShardIteration& it = slots_[newest_];
  it.number = iteration;
  it.shards = cut_into_shards(rows, options_.shard_size);
  it.schedule = schedules_->of(static_cast<int64_t>(it.shards.size()));
  it.own = it.schedule->ranges[static_cast<size_t>(group_->rank())];
  it.check = check_due(iteration, options_.check_frequency, it.schedule->ranges);
  it.repeats = it.check ? it.check->times(group_->rank()) : 0;
  under_way_.push_back(newest_);
  try {
    add(it);
  } catch (...) {
    under_way_.pop_back();
    newest_ = before(newest_);
    throw;
  }
  return it;
}

bool ShardExecutor::compute_besides(int64_t rows, int64_t iteration,
                                    const std::function<void(const ShardTask&)>& compute) {
  prepare(rows);
  const std::vector<IndexRange> shards = cut_into_shards(rows, options_.shard_size);
  const auto schedule = schedules_->of(static_cast<int64_t>(shards.size()));
  const IndexRange own = schedule->ranges[static_cast<size_t>(group_->rank())];
  if (own.count == 0) return false;
  note(0, own.first);
  compute({.iteration = iteration,
           .shard = own.first,
           .rows = shards[static_cast<size_t>(own.first)],
           .worker = 0});
  note(0, -1);
  return true;
}

const ShardIteration& ShardExecutor::finish() {
  ShardIteration& it = slots_[under_way_.front()];
  under_way_.pop_front();
  wait(it);
  fail_point("exchange", it.number);
  const TimeLimit limit(limit_);
  exchange(it, limit);
  if (program_.summary_bytes() == 0 && group_->size() > 1) exchange_summaries(it, limit);
  if (it.check) {
    std::vector<std::string> names;
    for (const auto& p : network_.parameters()) names.push_back(p.name);
    compare_results(it.number, *it.check, names, [&](int rank) { return check_digests(rank); });
  }
  return it;
}

void ShardExecutor::exchange_summaries(const ShardIteration& it, const TimeLimit& limit) {
  const auto all = group_->gather_each(program_.encode_summaries(it.own), limit);
  for (size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) != group_->rank()) {
      program_.decode_summaries(it.schedule->ranges[r], all[r]);
    }
  }
}

std::optional<size_t> ShardExecutor::abandon() {
  wait_for_all();
  if (under_way_.empty()) return std::nullopt;
  newest_ = before(under_way_.front());
  under_way_.clear();
  return newest_;
}

size_t ShardExecutor::abandon_from(const ShardIteration& it) {
  wait_for_all();
  under_way_.clear();
  newest_ = before(it.slot);
  return newest_;
}

}  // namespace lockstep
