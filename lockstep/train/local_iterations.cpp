#include "lockstep/train/local_iterations.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/parallel/comm/deal.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/mini_batches.h"
#include "lockstep/train/shard_check.h"
#include "lockstep/train/step_ledger.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The ledger's accounts of what lies around the step.
struct Parts {
  Parts() = default;
  explicit Parts(StepLedger& ledger) {
    const auto open = [&](const char* name) {
      return ledger.account(StepLedger::Phase::step, name);
    };
    records = open("records of the last iteration");
    mini_batch = open("waiting for the mini-batch");
    loss = open("loss");
    digest = open("digest of the state");
  }
  int records = 0, mini_batch = 0, loss = 0, digest = 0;
};

// Deals by number of shards, of which a training has two. Thread-safe.
class Deals {
 public:
  explicit Deals(std::vector<double> loads) : loads_(std::move(loads)) {}
  const std::vector<LeafRun>& of(int64_t shards) {
    const std::lock_guard lock(mutex_);
    const auto found = deals_.find(shards);
    if (found != deals_.end()) return found->second;
    return deals_.emplace(shards, deal_leaves(shards, loads_)).first->second;
  }

 private:
  const std::vector<double> loads_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<LeafRun>> deals_;
};

}  // namespace

struct LocalIterations::State {
  explicit State(const LocalIterationsSetup& s) : setup(s) {
    if (setup.profile) parts = Parts(ledger.emplace(setup.pool.size()));
  }

  const LocalIterationsSetup setup;
  std::optional<StepLedger> ledger;  // before the step, which books on it
  Parts parts;
  std::optional<MiniBatchQueue> queue;
  std::unique_ptr<TrainingStep> step;
  std::unique_ptr<Evaluator> evaluator;
  int64_t per_epoch = 1;
  int64_t begun = 0;
  int64_t computed = 0;
  Clock::time_point before = Clock::now();
  // Begun ahead and not finished: what is known of them already.
  std::deque<IterationOutcome> under_way;
  std::exception_ptr failed;  // of the one behind them, which could not be begun

  std::shared_ptr<const MiniBatch> take(IterationOutcome& r);
  void begin(int64_t iteration);
  IterationOutcome finish();
  void note_time(IterationOutcome& r);

  // The time since the last booking was this thread's, for `part` of the step.
  void book(int Parts::*part) {
    if (ledger) ledger->book(0, parts.*part);
  }

  void make_queue(int64_t next, decltype(MiniBatchQueueOptions::rows) rows) {
    MiniBatchQueueOptions options = mini_batches_of(setup.data, setup.options);
    options.targets = setup.images.targets;
    options.augment_inputs = options.noise.any() || !step->augments();
    options.rows = std::move(rows);
    // With shards on all cores another thread would take one from a thread that computes.
    const auto shards = cut_into_shards(setup.options.mini_batch_size, setup.options.shard_size);
    options.helped = std::min<int64_t>(setup.pool.size(), static_cast<int64_t>(shards.size())) >=
                         available_cores() &&
                     step->work_meanwhile([this](bool ahead) { return queue->help(ahead); });
    queue.reset();
    queue.emplace(setup.images.training, options, (next - 1) / per_epoch, (next - 1) % per_epoch);
    begun = next - 1;
  }
};

LocalIterations::LocalIterations(const LocalIterationsSetup& setup, int64_t first)
    : state_(std::make_unique<State>(setup)) {
  State& s = *state_;
  s.per_epoch =
      batches_per_epoch(setup.images.training->size(), mini_batches_of(setup.data, setup.options));
  s.step = make_training_step(setup.network, setup.solver, setup.pool, setup.options,
                              setup.images.training->dtype(), s.ledger ? &*s.ledger : nullptr);
  if (first > 0) s.make_queue(first, {});
  s.evaluator = make_validation(setup.network, setup.images, setup.data, setup.options, setup.pool,
                                setup.metrics);
}

LocalIterations::~LocalIterations() = default;

void LocalIterations::begin_timing() {
  if (state_->ledger) state_->ledger->begin_iteration();
  state_->before = Clock::now();
}

// The next mini-batch.
std::shared_ptr<const MiniBatch> LocalIterations::State::take(IterationOutcome& r) {
  auto batch = queue->next();
  book(&Parts::mini_batch);
  r.epoch = batch->epoch;
  r.index = batch->index;
  r.observations = batch->size();
  r.observations_digest = batch->observations_digest;
  return batch;
}

void LocalIterations::State::note_time(IterationOutcome& r) {
  const auto now = Clock::now();
  r.seconds =
      ledger ? ledger->end_iteration() : std::chrono::duration<double>(now - before).count();
  before = r.finished = now;
  ++computed;
}

void LocalIterations::State::begin(int64_t iteration) {
  try {
    IterationOutcome r;
    r.iteration = iteration;
    const auto batch = take(r);
    step->begin(*batch,
                {setup.learning_rate(iteration), iteration, static_cast<double>(batch->size())});
    under_way.push_back(r);
    begun = iteration;
  } catch (...) {
    failed = std::current_exception();
  }
}

IterationOutcome LocalIterations::State::finish() {
  IterationOutcome r = under_way.front();
  under_way.pop_front();
  const FinishedIteration finished = step->finish();
  r.sums = finished.sums;
  r.digest = finished.digest;
  if (!std::isfinite(r.sums.loss_sum)) under_way.clear();  // the step has forgotten them
  note_time(r);
  return r;
}

IterationOutcome LocalIterations::next(int64_t iteration, int64_t last) {
  State& s = *state_;
  // Memory is filled, caches are cold and clocks rise: what comes after is what lasts.
  if (s.ledger && s.computed == 1) s.ledger->forget();
  s.book(&Parts::records);
  // The one that is asked for, and one more: while that computes, the host reads what this gave.
  for (int64_t i = iteration + static_cast<int64_t>(s.under_way.size());
       i <= std::min(last, iteration + 1) && !s.failed && s.step->runs_ahead(i); ++i) {
    s.begin(i);
  }
  if (!s.under_way.empty()) return s.finish();
  if (s.failed) std::rethrow_exception(std::exchange(s.failed, nullptr));
  return compute(iteration, s.setup.learning_rate(iteration));
}

IterationOutcome LocalIterations::compute(int64_t iteration, double learning_rate) {
  State& s = *state_;
  s.begun = iteration;
  IterationOutcome r;
  r.iteration = iteration;
  const auto batch = s.take(r);
  r.sums = s.step->compute(*batch, iteration);
  if (std::isfinite(r.sums.loss_sum)) {
    s.book(&Parts::loss);
    s.step->apply({learning_rate, iteration, static_cast<double>(batch->size())});
    r.digest = s.step->digest(iteration);
  }
  s.book(&Parts::digest);
  s.note_time(r);
  return r;
}

int64_t LocalIterations::begun() const { return state_->begun; }

Evaluation LocalIterations::validate() { return state_->evaluator->run(); }

std::vector<int64_t> LocalIterations::shards() const { return state_->step->shards_by_worker(); }

std::optional<Profile> LocalIterations::profile() {
  State& s = *state_;
  if (!s.ledger || s.computed == 0) return std::nullopt;
  s.step->time_passes();
  return s.ledger->finish(s.queue->seconds_each());
}

TrainingStep& LocalIterations::step() { return *state_->step; }

Evaluator* LocalIterations::evaluator() { return state_->evaluator.get(); }

void LocalIterations::join(std::unique_ptr<Group> group, std::vector<double> loads, double limit,
                           int64_t next) {
  State& s = *state_;
  // Of a mini-batch only the rows of this member's shards are wanted.
  const auto rows = [rank = group->rank(), shard_size = s.setup.options.shard_size,
                     check_frequency = step().check_frequency(), per_epoch = s.per_epoch,
                     deals = std::make_shared<Deals>(loads)](int64_t epoch, int64_t index,
                                                             int64_t n) {
    const std::vector<ShardRange> shards = cut_into_shards(n, shard_size);
    const std::vector<LeafRun>& dealt = deals->of(static_cast<int64_t>(shards.size()));
    const LeafRun own = dealt[static_cast<size_t>(rank)];
    std::vector<MiniBatchQueueOptions::Rows> wanted;
    const auto add = [&](int64_t from, int64_t count) {
      const ShardRange& first = shards[static_cast<size_t>(from)];
      const ShardRange& last = shards[static_cast<size_t>(from + count - 1)];
      wanted.push_back({first.first, last.first + last.size - first.first});
    };
    if (own.count > 0) add(own.first, own.count);
    const auto check = check_due(epoch * per_epoch + index + 1, check_frequency, dealt);
    if (check && check->times(rank) > 0) add(check->shard, 1);
    return wanted;
  };
  step().join(std::move(group), std::move(loads), limit);
  s.make_queue(next, rows);
}

}  // namespace lockstep
