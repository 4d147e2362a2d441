// The part of LossProgram that leaves out what frozen layers need not do.
#include <cstring>
#include <vector>

#include "lockstep/engine/plan/kept_part.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/programs/loss_program.h"

namespace lockstep {

LossProgram::LossProgram(Network& network, const TrainingOptions& options,
                         std::vector<DType> inputs, IterationProfile* profile, bool mixed,
                         KeepingSetup keeping)
    : BuiltInLossProgram(network, options, std::move(inputs), mixed),
      profile_(profile),
      keeping_(std::move(keeping)),
      kept_(keeping_.memory, keeping_.inputs ? keeping_.observations : 0) {
  if (options.freeze.empty()) return;
  for (const Parameter& p : network.parameters()) {
    first_epochs_.push_back(first_learning_epoch(p.name, options));
  }
  plans_.leave_out_of_sums(never_learning(network, options));
  freeze_for(1);
}

void LossProgram::freeze_for(int64_t epoch) {
  if (first_epochs_.empty()) return;
  std::vector<bool> frozen;
  for (const int64_t first : first_epochs_) frozen.push_back(epoch < first);
  if (frozen == frozen_) return;
  frozen_ = frozen;
  // Profiles know plans by their addresses, so no new plan may have that of an old one.
  for (const Runs* const all : {&runs_, &bundle_runs_}) {
    for (const auto& [shape, runs] : *all) former_plans_.push_back(runs.plan);
  }
  runs_.clear();
  bundle_runs_.clear();
  threads_.clear();
  kept_.clear();
  keeping_.memory->reserve(0);
  told_ = false;
  plans_.divide(std::move(frozen));
}

void LossProgram::set_batch(const MiniBatch& batch) {
  BuiltInLossProgram::set_batch(batch);
  observations_ = batch.observations;
  kept_.begin_nothing();
  freeze_for(batch.epoch + 1);
}

const KeptPart* LossProgram::kept_part() const {
  const KeptPart* const part = plans_.kept_part();
  return part != nullptr && part->has_parameters ? part : nullptr;
}

bool LossProgram::keeps_results() const { return keeping_.keeps() && kept_part() != nullptr; }

void LossProgram::say_what_is_kept(const KeptPart& part) {
  if (told_ || !keeping_.notice || !keeping_.wanted || !keeping_.several_epochs) return;
  told_ = true;
  const std::string results = "the results of frozen layers";
  if (!keeping_.prevented.empty()) {
    keeping_.notice(results + " are computed in each iteration, because " + keeping_.prevented);
    return;
  }
  keeping_.notice(results + " are kept: " +
                  kept_text(part.row_bytes(), keeping_.observations, keeping_.memory->most()));
}

int64_t LossProgram::begin_shards(std::span<const IndexRange> shards,
                                  std::span<const int64_t> numbers) {
  const KeptPart* const part = kept_part();
  if (part != nullptr) say_what_is_kept(*part);
  if (!keeps_results() || std::ssize(observations_) != batch_rows_) return 0;
  keeping_.memory->reserve(part->row_bytes() * static_cast<size_t>(keeping_.observations));
  const auto row_bytes = [this](int64_t size) -> size_t {
    const KeptPart* const of = plans_.plan(size)->kept_part();
    return of != nullptr && of->has_parameters ? of->row_bytes() : 0;
  };
  before_ = &kept_.begin(observations_, shards, numbers, row_bytes);
  return std::ssize(*before_);
}

IndexRange LossProgram::shards_before(int64_t task) const {
  return before_->at(static_cast<size_t>(task)).shards;
}

void LossProgram::compute_before(int64_t task, int64_t iteration, int thread) {
  const KeptResults::Task& of = before_->at(static_cast<size_t>(task));
  const ThreadTimer waited(profile_, thread);
  waited(&IterationAccounts::waiting);
  ThreadTimer charge(profile_, thread);
  PlanRun& run = threads_[static_cast<size_t>(thread)].of(*runs_.at({of.size}).plan);
  const std::vector<KeptPart::Array>& arrays = run.plan().kept_part()->arrays;
  const auto count = static_cast<int64_t>(of.rows.size());
  copy_inputs_before(run, of);
  charge(&IterationAccounts::inputs);
  run.forward_first({seed_, static_cast<uint64_t>(iteration), 0}, charge.watch(run.plan()));
  size_t offset = 0;
  const size_t each = run.plan().kept_part()->row_bytes();
  for (size_t a = 0; a < arrays.size(); ++a) {
    const size_t bytes = arrays[a].row_bytes;
    for (int64_t i = 0; i < (of.trial != nullptr ? of.size : count); ++i) {
      const auto at = static_cast<size_t>(i);
      std::byte* const to = of.trial != nullptr ? of.trial + at * each : kept_.results(of.rows[at]);
      std::memcpy(to + offset, run.kept(a) + at * bytes, bytes);
    }
    for (size_t i = 0; i < of.others.size(); ++i) {
      const size_t at = of.rows.size() + i;
      std::memcpy(of.others[i].to + offset, run.kept(a) + at * bytes, bytes);
    }
    offset += bytes;
  }
  charge(&IterationAccounts::kept);
}

// Rows that are not needed are copies of the first one.
void LossProgram::copy_inputs_before(PlanRun& run, const KeptResults::Task& of) const {
  std::vector<std::byte*> to;
  for (size_t k = 0; k < plans_.inputs(); ++k) {
    to.push_back(static_cast<std::byte*>(run.input(static_cast<int>(k))));
  }
  for (size_t i = 0; i < static_cast<size_t>(of.size); ++i) {
    const size_t other = i - of.rows.size();
    bool filled = false;
    if (i >= of.rows.size() && other < of.others.size()) {
      filled = keeping_.inputs(of.others[other].observation, to);
      *of.others[other].computed = filled;
    }
    const int64_t row = of.rows[i < of.rows.size() ? i : 0];
    for (size_t k = 0; k < to.size(); ++k) {
      const size_t bytes = arrays_[k].row_bytes;
      if (!filled) std::memcpy(to[k], arrays_[k].at(row), bytes);
      to[k] += bytes;
    }
  }
}

void LossProgram::end_before() {
  if (kept_.finish() || !keeping_.notice) return;
  keeping_.notice(
      "the results of frozen layers are computed in each iteration, because the bits of an "
      "observation depend on its position or its neighbors in a shard");
}

bool LossProgram::knows(const PlanRun& run, const IndexRange& rows) const {
  if (run.plan().kept_part() == nullptr || !keeps_results()) return false;
  for (int64_t row = rows.first; row < rows.end(); ++row) {
    if (kept_.results(row) == nullptr) return false;
  }
  return true;
}

void LossProgram::copy_inputs(PlanRun& run, const Task& task, bool rest) const {
  const KeptPart* const part = run.plan().kept_part();
  const IndexRange rows{task.rows.front().first, task.rows.back().end() - task.rows.front().first};
  for (size_t k = 0; k < arrays_.size(); ++k) {
    if (rest && !part->rest_inputs[k]) continue;
    const int64_t steps = task.shape.steps_of(plans_.arrays()[k].sequence);
    arrays_[k].copy(rows, steps, run.input(static_cast<int>(k)));
  }
  if (!rest) return;
  size_t offset = 0;
  for (size_t a = 0; a < part->arrays.size(); ++a) {
    const size_t bytes = part->arrays[a].row_bytes;
    for (int64_t i = 0; i < rows.count; ++i) {
      std::memcpy(run.kept(a) + static_cast<size_t>(i) * bytes,
                  kept_.results(rows.first + i) + offset, bytes);
    }
    offset += bytes;
  }
}

}  // namespace lockstep
