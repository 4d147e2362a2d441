#include "lockstep/train/loop/local_iterations.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/parallel/reduce/partition.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/evaluation/validation.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/iteration/shard_check.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/loop/due_work.h"
#include "lockstep/train/loop/make_training_iteration.h"
#include "lockstep/train/optimizer/averaged_solver.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/profile/iteration_profiler.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The profiler's accounts for work outside of iterations.
struct Parts {
  Parts() = default;
  explicit Parts(IterationProfiler& profiler) {
    const auto open = [&](const char* name) {
      return profiler.account(IterationProfiler::Phase::iteration, name);
    };
    records = open("records of the last iteration");
    mini_batch = open("waiting for the mini-batch");
    network = open("waiting for the network");
    digest = open("digest of the state");
  }
  int records = 0, mini_batch = 0, network = 0, digest = 0;
};

// Copies inputs of examples in memory, or in files of this machine: what a store in a network takes
// long for is left to the queue.
std::function<bool(int64_t, std::span<std::byte* const>)> inputs_of(
    std::shared_ptr<const ExampleCache> images) {
  return [images = std::move(images)](int64_t observation, std::span<std::byte* const> to) {
    const bool local = images->recalled() && images->capacity() >= images->size();
    if (!local && !images->filled()) return false;
    std::vector<uint8_t> scratch;
    const uint8_t* example = nullptr;
    try {
      example = images->get(observation, scratch);
    } catch (const Error&) {
      return false;  // the mini-batch that has it tells, if there is one
    }
    for (size_t k = 0; k < to.size(); ++k) {
      const CachedValue& input = images->inputs()[k];
      std::memcpy(to[k], example + input.offset, input.bytes);
    }
    return true;
  };
}

}  // namespace

struct LocalIterations::State {
  explicit State(const IterationsSetup& s) : setup(s) {}

  const IterationsSetup setup;
  std::shared_ptr<KeptMemory> kept_memory = std::make_shared<KeptMemory>(0);
  std::optional<IterationsStart> start;
  std::optional<IterationProfiler> profiler;  // declared before the iteration, which uses it
  Parts parts;
  std::optional<storage::StopRetries> stop_retries;  // outlives the queue, whose threads may read
  std::optional<MiniBatchQueue> queue;
  std::unique_ptr<TrainingIteration> step;
  std::unique_ptr<Evaluator> evaluator;
  int64_t per_epoch = 1;
  int64_t begun = 0;
  int64_t computed = 0;
  Clock::time_point before = Clock::now();
  // Outcomes of iterations that have begun ahead and are not finished, as far as known.
  std::deque<IterationOutcome> under_way;
  std::exception_ptr failed;  // by the iteration after them, which could not begin

  KeepingSetup keeping() const;
  EvaluationKeeping keeping_for_validations() const;
  std::shared_ptr<const MiniBatch> next_mini_batch();
  std::shared_ptr<const MiniBatch> take(IterationOutcome& r);
  void begin(int64_t iteration, double learning_rate);
  IterationOutcome finish();
  void note_time(IterationOutcome& r);

  // Charges the time since the last charge to this thread, for `part` of the iteration.
  void charge(int Parts::*part) {
    if (profiler) profiler->charge(0, parts.*part);
  }

  void make_queue(int64_t next, decltype(MiniBatchQueueOptions::rows) rows) {
    MiniBatchQueueOptions options = mini_batches_of(setup.data, setup.options);
    options.targets = start->images.targets;
    options.augment_inputs = options.noise.any() || options.own_augmentation || !step->augments() ||
                             !options.augmentation.only_maps();
    options.rows = std::move(rows);
    options.cancelled = setup.interrupted;
    // If all cores compute shards, another thread would slow one of them down.
    const auto shards = cut_into_shards(setup.options.mini_batch_size, setup.options.shards.size);
    options.helped =
        std::min<int64_t>(start->pool.size(), static_cast<int64_t>(shards.size())) >=
            available_cores() &&
        step->executor().work_meanwhile([this](bool ahead) { return queue->help(ahead); });
    queue.reset();
    stop_retries.reset();
    queue.emplace(start->images.training, options, (next - 1) / per_epoch, (next - 1) % per_epoch);
    begun = next - 1;
  }
};

// Results of frozen layers are kept in what the images leave of cache_mib.
KeepingSetup LocalIterations::State::keeping() const {
  const TrainingOptions& options = setup.options;
  KeepingSetup keeping{.memory = kept_memory,
                       .observations = start->images.training->size(),
                       .notice = setup.notice,
                       .inputs = inputs_of(start->images.training)};
  keeping.wanted = options.keeps_features();
  keeping.several_epochs =
      options.max_epochs > 1 && (options.max_iterations == 0 || options.max_iterations > per_epoch);
  keeping.prevented = changes_between_epochs(setup.data);
  if (keeping.prevented.empty() && kept_memory->most() == 0) {
    keeping.prevented =
        "the images leave no room in cache_mib = " + std::to_string(options.data.cache_mib);
  }
  return keeping;
}

// Those of validation data are the same even where the training data changes.
EvaluationKeeping LocalIterations::State::keeping_for_validations() const {
  const TrainingOptions& options = setup.options;
  const ValidationOptions& validation = options.validation;
  const bool several =
      options.last_iteration(per_epoch) >
      iterations_between(validation.frequency, validation.frequency_unit, per_epoch);
  if (!options.keeps_features() || !several || setup.data.loss) return {};
  std::vector<int64_t> first_epochs;  // by parameter, in which it learns
  for (const Parameter& p : start->network.parameters()) {
    first_epochs.push_back(first_learning_epoch(p.name, options));
  }
  const auto frozen = [this, first_epochs] {
    const int64_t epoch = (std::max<int64_t>(begun, 1) - 1) / per_epoch + 1;
    std::vector<bool> now;
    for (const int64_t first : first_epochs) now.push_back(epoch < first);
    return now;
  };
  return {.frozen = frozen,
          .memory = kept_memory,
          .cause = "cache_mib = " + std::to_string(options.data.cache_mib),
          .notice = setup.notice};
}

LocalIterations::LocalIterations(const IterationsSetup& setup)
    : state_(std::make_unique<State>(setup)) {}

LocalIterations::~LocalIterations() = default;

void LocalIterations::begin(const IterationsStart& start) {
  State& s = *state_;
  const IterationsSetup& setup = s.setup;
  s.start.emplace(start);
  if (setup.profile) s.parts = Parts(s.profiler.emplace(start.pool.size()));
  s.per_epoch =
      batches_per_epoch(*start.images.training, mini_batches_of(setup.data, setup.options));
  const auto workers = static_cast<size_t>(std::max<int64_t>(setup.options.workers.count, 1));
  s.kept_memory = std::make_shared<KeptMemory>(budget_left(start.images, setup.options) / workers);
  s.step = make_training_iteration(start.network, start.solver, start.pool, setup.options,
                                   start.images.training->input_types(), &setup.data.loss,
                                   s.profiler ? &*s.profiler : nullptr, setup.notice,
                                   setup.data.augmentation.mixes(), s.keeping());
  if (start.first > 0) s.make_queue(start.first, {});
  s.evaluator = make_validation(start.network, start.images, setup.data, setup.options, start.pool,
                                start.metrics, s.keeping_for_validations());
  // On a device this shows whether its memory suffices. On the CPU the first validation prepares.
  if (s.evaluator && start.network.device() != Device{}) s.evaluator->prepare();
}

void LocalIterations::begin_timing() {
  if (state_->profiler) state_->profiler->begin_iteration();
  state_->before = Clock::now();
}

// A stop request does not wait for a store that does not answer.
std::shared_ptr<const MiniBatch> LocalIterations::State::next_mini_batch() {
  try {
    return queue->next();
  } catch (const Cancelled&) {
    if (!stop_retries) stop_retries.emplace([] { return true; });
    throw;
  }
}

// Takes the next mini-batch from the queue.
std::shared_ptr<const MiniBatch> LocalIterations::State::take(IterationOutcome& r) {
  const double waited = profiler ? storage::seconds_waited() : 0;
  auto batch = next_mini_batch();
  if (profiler) {
    profiler->charge_first(0, parts.network, storage::seconds_waited() - waited);
  }
  charge(&Parts::mini_batch);
  r.epoch = batch->epoch;
  r.index = batch->index;
  r.observations = batch->size();
  for (const RowArray& array : batch->arrays) {
    if (array.ragged()) r.steps = std::max(r.steps, array.offsets.back());
  }
  r.observations_digest = batch->observations_digest;
  return batch;
}

void LocalIterations::State::note_time(IterationOutcome& r) {
  const auto now = Clock::now();
  r.seconds =
      profiler ? profiler->end_iteration() : std::chrono::duration<double>(now - before).count();
  before = r.finished = now;
  ++computed;
}

void LocalIterations::State::begin(int64_t iteration, double learning_rate) {
  IterationOutcome r;
  r.iteration = iteration;
  const auto batch = take(r);
  step->begin(*batch, {learning_rate, iteration, static_cast<double>(batch->size()), per_epoch});
  under_way.push_back(r);
  begun = iteration;
}

IterationOutcome LocalIterations::State::finish() {
  IterationOutcome r = under_way.front();
  under_way.pop_front();
  const IterationOutcome finished = step->finish();
  r.loss_sum = finished.loss_sum;
  r.terms = finished.terms;
  r.correct = finished.correct;
  r.not_finite = finished.not_finite;
  r.digest = finished.digest;
  if (!std::isfinite(r.loss_sum)) under_way.clear();  // they are discarded
  charge(&Parts::digest);
  note_time(r);
  return r;
}

IterationOutcome LocalIterations::next(int64_t iteration, int64_t last) {
  State& s = *state_;
  // The first iteration allocates memory and fills caches, so it is not typical of the rest.
  if (s.profiler && s.computed == 1) s.profiler->forget();
  s.charge(&Parts::records);
  // Begins this iteration and, if the step permits it, the next one. The device then computes while
  // the host reads the results of this one.
  for (int64_t i = iteration + static_cast<int64_t>(s.under_way.size());
       !s.failed && i <= std::min(last, iteration + 1); ++i) {
    if (i > iteration && (s.step->depth(i) == 0 || s.step->depth(i - 1) == 0)) break;
    try {
      s.begin(i, s.setup.learning_rate(i));
    } catch (...) {
      s.failed = std::current_exception();
    }
  }
  if (s.under_way.empty()) std::rethrow_exception(std::exchange(s.failed, nullptr));
  return s.finish();
}

IterationOutcome LocalIterations::compute(int64_t iteration, double learning_rate) {
  state_->begin(iteration, learning_rate);
  return state_->finish();
}

int64_t LocalIterations::begun() const { return state_->begun; }

Evaluation LocalIterations::validate() {
  const AveragesInPlace averages(state_->start->network, state_->start->solver);
  return state_->evaluator->run();
}

std::optional<NotFinite> LocalIterations::not_finite() {
  const IterationsStart& start = *state_->start;
  return find_not_finite(start.network, start.solver, start.pool);
}

std::vector<int64_t> LocalIterations::shards() const {
  return state_->step->executor().shards_by_worker();
}

std::optional<Profile> LocalIterations::profile() {
  State& s = *state_;
  if (!s.profiler || s.computed == 0) return std::nullopt;
  s.step->time_passes(s.start->pool);
  return s.profiler->finish(s.queue->seconds_each());
}

TrainingIteration& LocalIterations::step() { return *state_->step; }

Evaluator* LocalIterations::evaluator() { return state_->evaluator.get(); }

void LocalIterations::join(std::shared_ptr<Group> group, std::vector<double> loads, double limit,
                           int64_t next) {
  State& s = *state_;
  const int rank = group->rank();
  step().join(std::move(group), std::move(loads), limit);
  // Loads only the rows of this member's shards.
  const auto rows = [rank, shard_size = s.setup.options.shards.size,
                     check_frequency = step().executor().check_frequency(), per_epoch = s.per_epoch,
                     schedules = step().executor().schedules()](int64_t epoch, int64_t index,
                                                                int64_t n) {
    const std::vector<IndexRange> shards = cut_into_shards(n, shard_size);
    const auto schedule = schedules->of(static_cast<int64_t>(shards.size()));
    const IndexRange own = schedule->ranges[static_cast<size_t>(rank)];
    std::vector<IndexRange> wanted;
    const auto add = [&](int64_t from, int64_t count) {
      const IndexRange& first = shards[static_cast<size_t>(from)];
      const IndexRange& last = shards[static_cast<size_t>(from + count - 1)];
      wanted.push_back({first.first, last.end() - first.first});
    };
    if (own.count > 0) add(own.first, own.count);
    const auto check = check_due(epoch * per_epoch + index + 1, check_frequency, schedule->ranges);
    if (check && check->times(rank) > 0) add(check->shard, 1);
    return wanted;
  };
  s.make_queue(next, rows);
}

}  // namespace lockstep
