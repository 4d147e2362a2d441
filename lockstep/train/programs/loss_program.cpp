#include "lockstep/train/programs/loss_program.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/reduce/tree.h"
#include "lockstep/train/input/targets.h"

namespace lockstep {
namespace {

constexpr int kScores = ShardPlans::kScores, kLosses = ShardPlans::kLosses;

}  // namespace

void BuiltInLossProgram::report(std::span<const IndexRange> shards, const SummaryOf& summary,
                                IterationOutcome& outcome) const {
  std::vector<double> losses;
  for (size_t j = 0; j < shards.size(); ++j) {
    ShardSummary one;
    std::memcpy(&one, summary(static_cast<int64_t>(j)), sizeof one);
    losses.push_back(one.loss);
    outcome.correct += one.correct;
  }
  outcome.loss_sum = tree_sum(losses);
}

void BuiltInLossProgram::follow_statistics(std::span<const IndexRange> shards,
                                           const SummaryOf& summary,
                                           const std::function<float*(int k)>& state) {
  if (plans_.statistics().empty()) return;
  std::vector<const float*> values;
  for (size_t j = 0; j < shards.size(); ++j) {
    values.push_back(
        reinterpret_cast<const float*>(summary(static_cast<int64_t>(j)) + sizeof(ShardSummary)));
  }
  lockstep::follow_statistics(plans_.statistics(), {shards.begin(), shards.end()}, values, state);
}

BuiltInLossProgram::BuiltInLossProgram(Network& network, const TrainingOptions& options,
                                       std::vector<DType> inputs)
    : network_(network),
      seed_(static_cast<uint64_t>(options.seed)),
      class_weights_(options.class_weights.begin(), options.class_weights.end()),
      loss_scale_(options.scale_of_losses()),
      plans_(network, options.dtype(), std::move(inputs)) {}

void BuiltInLossProgram::set_batch(const MiniBatch& batch) {
  check_batch(batch, plans_);
  batch_ = &batch;
}

Digest BuiltInLossProgram::summary_digest(const ShardTask& task) const {
  return digest_of(task.summary, summary_bytes());
}

void LossProgram::prepare(std::span<const IndexRange> shards, int workers) {
  for (const IndexRange& shard : shards) {
    std::vector<ThreadRun>& runs = runs_[shard.count];
    if (runs.size() >= static_cast<size_t>(workers)) continue;
    const auto plan = plans_.plan(shard.count);
    while (runs.size() < static_cast<size_t>(workers)) {
      runs.push_back({PlanRun(plan, network_.packed(), network_.state_pointers())});
      // The loss of a mini-batch is a sum until the one division at the root.
      std::fill_n(runs.back().plan.output_gradient(kLosses), shard.count,
                  static_cast<float>(loss_scale_));
    }
    if (profile_) profile_->open(*plan);
  }
}

ShardGradients LossProgram::compute(const ShardTask& task) {
  ThreadRun& own = runs_.at(task.rows.count)[static_cast<size_t>(task.worker)];
  PlanRun& run = own.plan;
  ++own.calls;
  const MiniBatch& batch = *batch_;
  const auto rows = static_cast<size_t>(task.rows.count);
  const auto first = static_cast<size_t>(task.rows.first);
  ThreadTimer charge(profile_, task.worker);
  charge(&StepAccounts::waiting);
  for (size_t k = 0; k < batch.inputs.size(); ++k) {
    const size_t row_bytes = plans_.inputs()[k].bytes();
    std::memcpy(run.input(static_cast<int>(k)), batch.inputs[k].bytes().data() + first * row_bytes,
                rows * row_bytes);
  }
  void* const targets = run.input(plans_.target_input());
  if (plans_.labelled()) {
    std::memcpy(targets, batch.labels.data() + first, rows * sizeof(int32_t));
  } else {
    const auto count = static_cast<size_t>(plans_.outputs());
    copy_targets(batch, first * count, rows * count, static_cast<float*>(targets));
  }

  const StepInfo step{seed_, static_cast<uint64_t>(task.iteration), task.rows.first};
  charge(&StepAccounts::inputs);
  run.forward(step, charge.watch(run.plan()));
  const float* const loss = run.output(kLosses);
  float* const output_gradients = run.output_gradient(kLosses);
  auto& summary = *reinterpret_cast<ShardSummary*>(task.summary);
  summary = {};
  for (size_t i = 0; i < rows; ++i) {
    double weight = 1;
    if (!class_weights_.empty()) {
      weight = static_cast<double>(class_weights_[static_cast<size_t>(batch.labels[first + i])]);
      output_gradients[i] = static_cast<float>(weight * loss_scale_);
    }
    summary.loss += weight * static_cast<double>(loss[i]);
  }
  if (plans_.labelled()) {
    summary.correct = count_correct(run.output(kScores), batch.labels.data() + first,
                                    task.rows.count, plans_.outputs());
  }
  auto* to = reinterpret_cast<float*>(&summary + 1);
  for (const MovingStatistics& s : plans_.statistics()) {
    const auto channels = static_cast<size_t>(s.channels);
    to = std::copy_n(run.output(s.mean_output), channels, to);
    to = std::copy_n(run.output(s.variance_output), channels, to);
  }
  charge(&StepAccounts::losses);
  fail_point("backward", task.iteration, task.shard);
  run.backward(step, charge.watch(run.plan()));
  return {run.gradients(), nullptr};
}

void LossProgram::time_passes(ThreadPool& pool, PassFloors& floors) {
  for (auto& [size, runs] : runs_) {
    std::vector<PlanRun*> all;
    double calls = 0;
    for (ThreadRun& run : runs) {
      all.push_back(&run.plan);
      calls += static_cast<double>(run.calls);
    }
    const Plan& plan = runs.front().plan.plan();
    floors.add(profile_->passes.at(&plan), calls,
               lockstep::time_passes(pool, plan, all, {seed_, 1, 0}));
  }
}

}  // namespace lockstep
