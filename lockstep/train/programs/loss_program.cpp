#include "lockstep/train/programs/loss_program.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/parallel/reduce/schedule.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// Charges the time until a block is ready to the account of its sum, without the sink's own work.
class ChargingSink final : public GradientSink {
 public:
  ChargingSink(GradientSink& sink, IterationProfiler& profiler, int account)
      : sink_(sink), profiler_(profiler), account_(account) {}
  std::span<const float* const> arrays(size_t parameter) const override {
    return sink_.arrays(parameter);
  }
  bool reads(size_t parameter) const override { return sink_.reads(parameter); }
  void use(const ParameterBlock& block, const float* sum, int thread) override {
    profiler_.charge(thread, account_);
    sink_.use(block, sum, thread);
  }

 private:
  GradientSink& sink_;
  IterationProfiler& profiler_;
  const int account_;
};

}  // namespace

void BuiltInLossProgram::report(std::span<const IndexRange> shards, const SummaryOf& summary,
                                IterationOutcome& outcome) const {
  std::vector<double> losses;
  for (size_t j = 0; j < shards.size(); ++j) {
    ShardSummary one;
    std::memcpy(&one, summary(static_cast<int64_t>(j)), sizeof one);
    losses.push_back(one.loss);
    outcome.correct += one.correct;
    outcome.terms += one.terms;
    outcome.not_finite.add(one.not_finite.first, one.not_finite.last);
  }
  outcome.loss_sum = tree_sum(losses);
}

namespace {

// What each shard's summary has of the batch statistics.
std::vector<const float*> statistics_of(size_t shards, const SummaryOf& summary) {
  std::vector<const float*> values;
  for (size_t j = 0; j < shards; ++j) {
    values.push_back(
        reinterpret_cast<const float*>(summary(static_cast<int64_t>(j)) + sizeof(ShardSummary)));
  }
  return values;
}

}  // namespace

void BuiltInLossProgram::check_statistics(std::span<const IndexRange> shards,
                                          const SummaryOf& summary) {
  const auto counted = [](const MovingStatistics& s) { return s.counted; };
  if (std::ranges::none_of(plans_.statistics(), counted)) return;
  lockstep::check_statistics(plans_.statistics(), {shards.begin(), shards.end()},
                             statistics_of(shards.size(), summary));
}

void BuiltInLossProgram::follow_statistics(std::span<const IndexRange> shards,
                                           const SummaryOf& summary,
                                           const std::function<float*(int k)>& state) {
  if (plans_.statistics().empty() && plans_.carries().empty()) return;
  const std::vector<const float*> values = statistics_of(shards.size(), summary);
  lockstep::follow_statistics(plans_.statistics(), {shards.begin(), shards.end()}, values, state);
  if (fresh_) network_.reset_row_states();
  for (size_t j = 0; j < shards.size(); ++j) {
    carried_.take(shards[j], values[j] + plans_.statistic_elements());
  }
}

BuiltInLossProgram::BuiltInLossProgram(Network& network, const TrainingOptions& options,
                                       std::vector<DType> inputs, bool mixed)
    : network_(network),
      seed_(static_cast<uint64_t>(options.seed)),
      class_weights_(mixed ? std::vector<float>()
                           : options.weights_outside_loss(labels_pixels(network))),
      loss_scale_(options.precision.scale_of_losses()),
      plans_(network, network.device(), options.precision.dtype(), std::move(inputs),
             options.trained_loss(network.loss(), labels_pixels(network)), mixed),
      weights_of_mixed_(mixed ? options.weights_outside_loss() : std::vector<float>()) {}

// What multiplies the losses of a row's two labels: their shares, and the weights of their classes.
void BuiltInLossProgram::set_factors(const MiniBatch& batch) {
  const size_t at = plans_.first_factor(), n = static_cast<size_t>(batch.size());
  const RowArray* const shares = array_after(batch, plans_.inputs(), "label_shares");
  if (shares == nullptr || shares->rows != batch.size()) {
    throw InvalidArgument("[training] the mini-batch of mixed images has no label_shares");
  }
  const auto* const others = reinterpret_cast<const int32_t*>(arrays_[at + 2].first);
  const std::span<const float> own = shares->values<float>();
  const auto weight = [&](int32_t label) {
    return weights_of_mixed_.empty() ? 1.0F : weights_of_mixed_.at(static_cast<size_t>(label));
  };
  factors_.resize(2 * n);
  for (size_t i = 0; i < n; ++i) {
    factors_[i] = own[i] * weight(labels()[i]);
    factors_[n + i] = (1 - own[i]) * weight(others[i]);
  }
  for (size_t k = 0; k < 2; ++k) {
    arrays_[at + k] = {reinterpret_cast<const std::byte*>(factors_.data() + k * n), sizeof(float)};
  }
}

void BuiltInLossProgram::set_batch(const MiniBatch& batch) {
  arrays_ = batch_arrays(batch, plans_);
  fresh_ = batch.rows_begin();
  carried_ = CarriedRows(network_, plans_.carries(), fresh_);
  for (size_t k = 0; k < plans_.carries().size(); ++k) {
    arrays_[plans_.first_carry() + k] = carried_.read(k);
  }
  if (plans_.mixed()) set_factors(batch);
  maps_ = &batch.maps;
  batch_rows_ = batch.size();
}

Digest BuiltInLossProgram::summary_digest(const ShardTask& task) const {
  return digest_of(task.summary, summary_bytes());
}

double BuiltInLossProgram::loss_of(const ShardTask& task) const {
  ShardSummary summary;
  std::memcpy(&summary, task.summary, sizeof summary);
  return summary.loss;
}

void LossProgram::prepare(std::span<const IndexRange> shards, int workers) {
  for (const IndexRange& shard : shards) {
    // Before the first mini-batch no lengths are known.
    if (arrays_.empty() || !plans_.sequences()) {
      plans_.plan(shard.count);
      if (plans_.sequences()) continue;
    }
    const ShardShape shape = shard_shape(plans_, arrays_, shard);
    plans_.plan(shape);
    wanted_[shape] = std::max(wanted_[shape], workers);
  }
  if (!plans_.shards_together()) prepare_shards();
}

void LossProgram::prepare_shards() {
  for (const auto& [shape, threads] : wanted_) add_runs(runs_, shape, threads, plans_.plan(shape));
}

void LossProgram::add_runs(Runs& all, const ShardShape& shape, int threads,
                           const std::shared_ptr<const Plan>& plan) {
  ShapeRuns& runs = all.try_emplace(shape, ShapeRuns{plan}).first->second;
  if (runs.calls.size() >= static_cast<size_t>(threads)) return;
  while (threads_.size() < static_cast<size_t>(threads)) {
    threads_.emplace_back(network_.packed(), network_.state_pointers());
  }
  for (; runs.calls.size() < static_cast<size_t>(threads); runs.calls.push_back(0)) {
    threads_[runs.calls.size()].add(plan);
  }
  if (profile_) profile_->open(*plan);
}

ShardGradients LossProgram::compute(const ShardTask& task) {
  const ShardShape shape = shard_shape(plans_, arrays_, task.rows);
  ThreadTimer charge(profile_, task.worker);
  charge(&IterationAccounts::waiting);
  const PlanRun& own =
      run(runs_.at(shape),
          {task.iteration, task.shard, shape, {&task.rows, 1}, {&task.summary, 1}, task.worker},
          charge);
  return {own.gradients(), nullptr};
}

void LossProgram::prepare_bundles(const ShardBundles& work, int threads) {
  work_ = &work;
  for (const IndexRange& bundle : work.bundles) {
    int64_t rows = 0;
    for (int64_t i = 0; i < bundle.count; ++i) {
      rows += work.rows[static_cast<size_t>(bundle.first - work.shards.first + i)].count;
    }
    const auto known = bundle_runs_.find({rows});
    if (known != bundle_runs_.end() && known->second.calls.size() >= static_cast<size_t>(threads)) {
      continue;
    }
    const auto plan = plans_.plan_of_bundle(rows);
    add_runs(bundle_runs_, {rows}, threads, plan);
    make_sums(*plan);
  }
  sums_->begin(work);
}

void LossProgram::make_sums(const Plan& plan) {
  if (sums_) return;
  sums_.emplace(plan.shard_sums(), gradient_layout());
  auto ranges = std::make_shared<UpdateRanges>();
  sums_->add_to(*ranges);
  ranges_ = std::move(ranges);
  if (!profile_) return;
  using Phase = IterationProfiler::Phase;
  for (const PlanShardSum& sum : plan.shard_sums()) {
    const std::string name = sum.name + ": gradient of parameters";
    sum_accounts_.push_back(profile_->profiler.account(Phase::backward, name));
  }
  keeping_account_ = profile_->profiler.account(Phase::iteration, "operands of sums over shards");
}

size_t LossProgram::operand_bytes(std::span<const IndexRange> rows) {
  // The sums do not depend on the number of rows.
  make_sums(*plans_.plan_of_bundle(rows.front().count));
  return sums_->operand_bytes(rows);
}

void LossProgram::compute_bundle(size_t bundle, int thread) {
  const IndexRange& shards = work_->bundles[bundle];
  const auto at = static_cast<size_t>(shards.first - work_->shards.first);
  const auto count = static_cast<size_t>(shards.count);
  const auto rows = std::span(work_->rows).subspan(at, count);
  const int64_t first = rows.front().first;
  const ShardShape shape{rows.back().end() - first};
  ThreadTimer charge(profile_, thread);
  charge(&IterationAccounts::waiting);
  const PlanRun& own = run(bundle_runs_.at(shape),
                           {work_->iteration, shards.first, shape, rows,
                            std::span(work_->summaries).subspan(at, count), thread},
                           charge);
  sums_->keep(own, first - work_->rows.front().first);
  if (profile_) profile_->profiler.charge(thread, keeping_account_);
}

void LossProgram::add_gradients(int64_t range, int thread) {
  const ThreadTimer charge(profile_, thread);
  charge(&IterationAccounts::waiting);
  sums_used_.store(false, std::memory_order_relaxed);
  sums_->add(range);
  if (profile_) profile_->profiler.charge(thread, sum_accounts_[sums_->sum_of(range)]);
}

void LossProgram::give_gradients(int64_t range, int thread, GradientSink& sink) {
  const ThreadTimer charge(profile_, thread);
  charge(&IterationAccounts::waiting);
  sums_used_.store(true, std::memory_order_relaxed);
  if (!profile_) return sums_->compute(range, thread, sink);
  ChargingSink charging(sink, profile_->profiler, sum_accounts_[sums_->sum_of(range)]);
  sums_->compute(range, thread, charging);
}

PlanRun& LossProgram::run(ShapeRuns& of, const Task& task, ThreadTimer& charge) {
  PlanRun& run = threads_[static_cast<size_t>(task.thread)].of(*of.plan);
  ++of.calls[static_cast<size_t>(task.thread)];
  const RandomContext step{seed_, static_cast<uint64_t>(task.iteration), task.rows.front().first};
  const bool rest = knows(run, task.rows.front());
  copy_inputs(run, task, rest);
  charge(&IterationAccounts::inputs);
  if (rest) {
    run.forward_rest(step, charge.watch(run.plan()));
  } else {
    run.forward(step, charge.watch(run.plan()));
  }
  summarize(run, task);
  charge(&IterationAccounts::losses);
  for (size_t i = 0; i < task.rows.size(); ++i) {
    fail_point("backward", task.iteration, task.shard + static_cast<int64_t>(i));
  }
  if (run.plan().kept_part() != nullptr) {
    run.backward_rest(step, charge.watch(run.plan()));
  } else {
    run.backward(step, charge.watch(run.plan()));
  }
  return run;
}

// The loss of a mini-batch is a sum until the one division at the root.
void LossProgram::summarize(PlanRun& run, const Task& task) const {
  const int32_t* const labels = this->labels();
  const float* loss = run.output(ShardPlans::kLosses);
  const float* scores = run.output(ShardPlans::kScores);
  float* output_gradient = run.output_gradient(ShardPlans::kLosses);
  for (size_t s = 0; s < task.rows.size(); ++s) {
    const IndexRange& rows = task.rows[s];
    auto& summary = *reinterpret_cast<ShardSummary*>(task.summaries[s]);
    summary = {};
    for (int64_t row = rows.first; row < rows.end(); ++row) {
      const double weight =
          class_weights_.empty() ? 1.0 : double{class_weights_[static_cast<size_t>(labels[row])]};
      *output_gradient++ = static_cast<float>(weight * loss_scale_);
      summary.add(weight * static_cast<double>(*loss++), row);
    }
    summary.terms = rows.count;
    if (plans_.output_sequence() >= 0) {
      count_steps(task, scores, summary);
    } else if (const int64_t pixels = plans_.pixels()) {
      const PixelCounts counts = count_pixels(scores, labels + rows.first * pixels, rows.count,
                                              plans_.outputs() / pixels, pixels);
      summary.terms = counts.labels;
      summary.correct = counts.correct;
    } else if (labels) {
      summary.correct = count_correct(scores, labels + rows.first, rows.count, plans_.outputs());
    }
    scores += rows.count * plans_.outputs();
    auto* to = reinterpret_cast<float*>(&summary + 1);
    for (const MovingStatistics& statistic : plans_.statistics()) {
      const auto channels = static_cast<size_t>(statistic.channels);
      to = std::copy_n(run.output(statistic.mean_output), channels, to);
      to = std::copy_n(run.output(statistic.variance_output), channels, to);
    }
    const int64_t before = rows.first - task.rows.front().first;
    for (size_t k = 0; k < plans_.carries().size(); ++k) {
      const int64_t row = plans_.arrays()[plans_.first_carry() + k].shape.elements();
      to = std::copy_n(run.output(plans_.carries()[k].output) + before * row, rows.count * row, to);
    }
    // A smaller shard leaves fewer rows.
    std::fill_n(to, (plans_.most_rows() - rows.count) * plans_.carried_elements(), 0.0f);
  }
}

// Shards of sequences are computed one by one.
void LossProgram::count_steps(const Task& task, const float* scores, ShardSummary& summary) const {
  const RowsOf& targets = arrays_.back();
  const IndexRange& rows = task.rows.front();
  const int64_t steps = task.shape.steps_of(plans_.output_sequence());
  summary.terms = 0;
  for (int64_t i = rows.first; i < rows.end(); ++i, scores += steps * plans_.outputs()) {
    const int64_t own = targets.length(i);
    summary.terms += own;
    if (!plans_.labeled() || own == 0) continue;
    const auto* const labels = reinterpret_cast<const int32_t*>(targets.at(targets.offsets[i]));
    summary.correct += count_correct(scores, labels, own, plans_.outputs());
  }
}

void LossProgram::time_passes(ThreadPool& pool, PassFloors& floors) {
  for (Runs* all : {&runs_, &bundle_runs_}) {
    for (auto& [shape, runs] : *all) {
      std::vector<PlanRun*> plans;
      double calls = 0;
      for (size_t thread = 0; thread < runs.calls.size(); ++thread) {
        plans.push_back(&threads_[thread].of(*runs.plan));
        calls += static_cast<double>(runs.calls[thread]);
      }
      floors.add(profile_->passes.at(runs.plan.get()), calls,
                 lockstep::time_passes(pool, *runs.plan, plans, {seed_, 1, 0}));
    }
  }
  if (sums_) time_sums(pool, floors);
}

namespace {

// Notes when each block of a sum is ready.
class TimingSink final : public GradientSink {
 public:
  TimingSink(PassTimes& times, size_t sum) : times_(times), sum_(sum) {}
  std::span<const float* const> arrays(size_t) const override { return {}; }
  void use(const ParameterBlock&, const float*, int) override { times_.passed(sum_); }

 private:
  PassTimes& times_;
  const size_t sum_;
};

}  // namespace

// Times the update ranges of sums over the rows that were kept last, as they were computed last.
void LossProgram::time_sums(ThreadPool& pool, PassFloors& floors) {
  constexpr int kRepeats = 5;
  std::vector<PassTimes> times(static_cast<size_t>(pool.size()), PassTimes(sum_accounts_.size()));
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    pool.run([&](int thread) {
      const ArithmeticMode mode;
      PassTimes& own = times[static_cast<size_t>(thread)];
      own.begin();
      for (int64_t i = thread; i < sums_->update_ranges(); i += pool.size()) {
        const size_t sum = sums_->sum_of(i);
        if (sums_used_) {  // each block is an entry of the account
          TimingSink sink(own, sum);
          sums_->compute(i, thread, sink);
        } else {
          sums_->add(i);
          own.passed(sum);
        }
      }
    });
  }
  floors.add(sum_accounts_, 1, std::move(times));
}

}  // namespace lockstep
