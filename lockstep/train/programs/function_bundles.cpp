// Losses of users whose shards are summed together: the loss is called for each shard, and the
// gradients of parameters are products over the rows of all shards.
//
// What a function will do cannot be known. So its first shards are computed one by one and show
// which branches of the network it runs. If a later shard does anything else, the iteration is
// computed again, one by one, and so are all later ones of this loss.
#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/programs/function_program.h"
#include "lockstep/train/programs/shard_state.h"

namespace lockstep {
namespace {

ForwardStatistics::Key branch_of(ForwardStatistics::Key key) {
  key.n = 0;
  return key;
}

}  // namespace

FunctionProgram::LossType FunctionProgram::type_of(const ShardLoss& loss) {
  using Function = Tensor (*)(Shard&);
  const Function* const function = loss.target<Function>();  // all functions have one type
  return {std::type_index(loss.target_type()),
          function ? reinterpret_cast<std::uintptr_t>(*function) : 0};
}

// One thread calls it, between iterations.
BundledProgram* FunctionProgram::bundled() {
  const BundledLoss* const loss = bundled_loss_;
  const bool can = loss != nullptr && !loss->apart && !loss->branches.empty();
  // States by row must not be carried twice.
  return can && network_.device().is_cpu() && network_.row_states().empty() ? this : nullptr;
}

void FunctionProgram::note_branches(const Shard::State& s, bool uses_parameters) {
  if (!network_.device().is_cpu()) return;
  bool apart = uses_parameters;
  std::vector<BranchKey> branches;
  std::vector<bool> reached(network_.parameters().size(), false);
  for (const auto& [key, made] : s.swept) {
    // Sums need a row for each observation, and one gradient of each parameter.
    apart = apart || key.n != s.range.count || !key.steps.empty() || !made->plan->shards_together();
    for (size_t p = 0; p < reached.size(); ++p) {
      if (!made->plan->reached_parameters()[p]) continue;
      apart = apart || reached[p];
      reached[p] = true;
    }
    branches.push_back(branch_of(key));
  }
  std::sort(branches.begin(), branches.end());
  const MutexLock lock(mutex_);
  BundledLoss& loss = *bundled_loss_;
  if (apart || (!loss.branches.empty() && loss.branches != branches)) loss.apart = true;
  if (!loss.apart && loss.branches.empty()) {
    loss.branches = std::move(branches);
    loss.reached = std::move(reached);
  }
}

void FunctionProgram::make_sums(int64_t rows) {
  BundledLoss& loss = *bundled_loss_;
  if (!loss.sums.empty()) return;
  for (BranchKey key : loss.branches) {
    key.n = rows;
    loss.sums.emplace_back(plan(key, Use::bundles).plan->shard_sums(), layout_);
  }
  auto ranges = std::make_shared<UpdateRanges>();
  for (const ShardSums& sums : loss.sums) sums.add_to(*ranges);
  loss.ranges = std::move(ranges);
}

void FunctionProgram::prepare_bundles(const ShardBundles& work, int) {
  work_ = &work;
  deviates_ = false;
  make_sums(work.rows.front().count);
  for (ShardSums& sums : bundled_loss_->sums) sums.begin(work);
  // Sums of parameters that the loss does not depend on are 0, and no update range has them.
  for (size_t p = 0; p < layout_.entries.size(); ++p) {
    if (bundled_loss_->reached[p]) continue;
    const GradientLayout::Entry& entry = layout_.entries[p];
    for (const ShardSubtree& subtree : work.subtrees) {
      std::memset(subtree.sum + entry.offset, 0, entry.spec.bytes());
    }
  }
}

void FunctionProgram::compute_bundle(size_t bundle, int thread) {
  const IndexRange& shards = work_->bundles[bundle];
  for (int64_t i = shards.first; i < shards.end() && !deviates_; ++i) {
    compute({.iteration = work_->iteration,
             .shard = i,
             .rows = work_->rows[static_cast<size_t>(i - work_->shards.first)],
             .worker = thread},
            true);
  }
}

bool FunctionProgram::is_branch(const Shard::State& s, const ForwardStatistics::Key& key) const {
  if (!s.in_bundle || key.n != s.range.count) return false;
  const std::vector<BranchKey>& known = bundled_loss_->branches;
  return std::binary_search(known.begin(), known.end(), branch_of(key));
}

void FunctionProgram::keep_operands(Shard::State& s, const ForwardStatistics::Key& key,
                                    const PlanRun& run) {
  if (!is_branch(s, key) || std::count(s.kept.begin(), s.kept.end(), key) > 0) {
    deviates_ = true;
    return;
  }
  s.kept.push_back(key);
  const std::vector<BranchKey>& known = bundled_loss_->branches;
  const auto at = std::lower_bound(known.begin(), known.end(), branch_of(key));
  bundled_loss_->sums[static_cast<size_t>(at - known.begin())].keep(
      run, s.range.first - work_->rows.front().first);
}

bool FunctionProgram::have_operands() {
  if (deviates_) bundled_loss_->apart = true;
  return !deviates_;
}

size_t FunctionProgram::operand_bytes(std::span<const IndexRange> rows) {
  make_sums(rows.front().count);
  size_t bytes = 0;
  for (const ShardSums& sums : bundled_loss_->sums) bytes += sums.operand_bytes(rows);
  return bytes;
}

std::pair<ShardSums*, int64_t> FunctionProgram::update_range_of(int64_t range) const {
  for (ShardSums& sums : bundled_loss_->sums) {
    if (range < sums.update_ranges()) return {&sums, range};
    range -= sums.update_ranges();
  }
  throw InternalError("[sharded_value_and_gradient] a sum has no such update range");
}

void FunctionProgram::add_gradients(int64_t range, int thread) {
  const ThreadTimer charge(profile_, thread);
  charge(&IterationAccounts::waiting);
  const auto [sums, number] = update_range_of(range);
  sums->add(number);
  charge(&IterationAccounts::sums);
}

void FunctionProgram::give_gradients(int64_t range, int thread, GradientSink& sink) {
  const ThreadTimer charge(profile_, thread);
  charge(&IterationAccounts::waiting);
  const auto [sums, number] = update_range_of(range);
  sums->compute(number, thread, sink);
  charge(&IterationAccounts::sums);
}

}  // namespace lockstep
