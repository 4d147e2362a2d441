#include "lockstep/train/iteration/training_iteration.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/nn/lowering.h"

namespace lockstep {

TrainingIteration::TrainingIteration(Parts parts, int64_t mini_batch_size)
    : parts_(std::move(parts)) {
  parts_.executor->prepare(mini_batch_size);
  // Packed copies from earlier uses of the network may be out of date.
  parts_.network.packed().pack_all();
  parts_.updater->values_changed();
}

// Destroys the executor first: a device may have work under way in memory of the other parts.
TrainingIteration::~TrainingIteration() {
  try {
    give_up();
  } catch (const std::exception&) {
    // If a device fails here, an earlier call has already reported the failure.
  }
  parts_.executor.reset();
}

void TrainingIteration::join(std::shared_ptr<Group> group, std::vector<double> loads,
                             double limit) {
  give_up();
  parts_.executor->join(std::move(group), std::move(loads), limit);
  parts_.updater->values_changed();
}

// Waits for work under way and returns to the last finished iteration.
void TrainingIteration::give_up() {
  const std::optional<size_t> slot = parts_.executor->abandon();
  const bool applied = !begun_.empty() && begun_.front().applied;
  begun_.clear();
  if (slot && applied) parts_.updater->restore(*slot);
}

int64_t TrainingIteration::depth(int64_t iteration) const {
  return parts_.executor->runs_ahead(iteration) && !parts_.updater->waits() ? 1 : 0;
}

void TrainingIteration::apply(const UpdateScalars& scalars, size_t slot) {
  fail_point("update", scalars.iteration);
  parts_.updater->apply(scalars, slot);
}

void TrainingIteration::follow(const ShardIteration& it) {
  const ArithmeticMode mode;
  parts_.program->follow_statistics(
      it.shards, [&](int64_t j) { return parts_.executor->summary(it, j); },
      [&](int k) { return parts_.updater->state(k); });
  ThreadTimer(parts_.profile.get(), 0)(&IterationAccounts::statistics);
}

void TrainingIteration::begin(const MiniBatch& batch, const UpdateScalars& scalars) {
  const bool ahead = depth(scalars.iteration) > 0;
  if (!begun_.empty() && !(ahead && begun_.back().applied)) {
    throw InternalError("[training] iteration " + std::to_string(scalars.iteration) +
                        " was begun before the one that it needs was finished");
  }
  ShardExecutor& executor = *parts_.executor;
  if (ahead) parts_.updater->keep(executor.newest());
  parts_.program->set_batch(batch);
  const auto compare = [&](const ShardTask& task) { parts_.compare_first(batch, task); };
  if (parts_.compare_first && executor.compute_besides(batch.size(), scalars.iteration, compare)) {
    parts_.compare_first = {};
  }
  ShardIteration& it = executor.begin(batch.size(), scalars.iteration);
  begun_.push_back({scalars, ahead});
  if (!ahead) return;
  apply(scalars, it.slot);
  executor.mark(it);
}

IterationOutcome TrainingIteration::finish() {
  Begun begun = begun_.front();
  begun_.pop_front();
  const ShardIteration& it = parts_.executor->finish();
  IterationOutcome outcome;
  outcome.iteration = it.number;
  outcome.observations = it.observations();
  parts_.program->report(
      it.shards, [&](int64_t j) { return parts_.executor->summary(it, j); }, outcome);
  if (!std::isfinite(outcome.loss_sum)) {
    // Synchronous iterations have applied nothing, and none begins after them.
    if (!begun.applied) return outcome;
    const size_t slot = parts_.executor->abandon_from(it);
    begun_.clear();
    parts_.updater->restore(slot);
    return outcome;
  }
  if (!begun.applied) {
    parts_.program->check_statistics(it.shards,
                                     [&](int64_t j) { return parts_.executor->summary(it, j); });
    begun.scalars.observations = static_cast<double>(std::max<int64_t>(outcome.terms, 1));
    apply(begun.scalars, it.slot);
  }
  follow(it);
  // The device reads its states only while no iteration is under way.
  if (begun_.empty()) parts_.updater->states_changed();
  if (!begun.applied) parts_.updater->wait();
  outcome.digest = parts_.updater->digest(it.number, it.slot);
  return outcome;
}

void TrainingIteration::time_passes(ThreadPool& pool) {
  if (!parts_.profile) return;
  PassFloors floors;
  parts_.program->time_passes(pool, floors);
  floors.set(parts_.profile->profiler);
}

}  // namespace lockstep
