#include "lockstep/train/workers/worker_iterations.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/train/evaluation/validation.h"
#include "lockstep/train/workers/membership/group_formation.h"
#include "lockstep/train/workers/membership/worker_events.h"

namespace lockstep {
namespace {

// Seconds ahead for which workers are granted iterations, within these bounds.
constexpr double kAhead = 0.1;
// Seconds after which a stop request no longer waits for an iteration that waits for data.
constexpr double kPatience = 0.5;
constexpr int64_t kLeastAhead = 2, kMostAhead = 16;

}  // namespace

struct WorkerIterations::State {
  State(const IterationsSetup& setup, const Call<TrainingProblem>& problem,
        const TrainingWorkers& workers)
      : parts(setup, problem, workers) {}
  ~State() {
    if (parts.validation.awaited()) parts.validation.call_off();
  }

  WorkerParts parts;
  WorkerEvents events{parts};
  GroupFormation formation{parts, events};
  Network* network = nullptr;
  Solver* solver = nullptr;
  ThreadPool* pool = nullptr;
  int64_t validated = 0;  // the last iteration that was validated

  void order_all(const auto& what);
  void grant(int64_t to);
  void advance(int64_t target, int64_t last);
  bool stop_retries();
};

// Sends an order to the present group.
void WorkerIterations::State::order_all(const auto& what) {
  const Bytes order = encode(WorkerOrder(what));
  for (const uint32_t worker : parts.group.ranks()) {
    if (!parts.membership.send(worker, order)) parts.membership.kill(worker, "");
  }
}

void WorkerIterations::State::grant(int64_t to) {
  GrantOrder grant{.generation = parts.group.generation(),
                   .first = parts.records.granted() + 1,
                   .learning_rates = {}};
  for (int64_t i = grant.first; i <= to; ++i) {
    grant.learning_rates.push_back(parts.setup.learning_rate(i));
  }
  parts.records.grant(to);
  order_all(grant);
}

// If a stop is requested, ends the workers' waits for a store that does not answer. Returns whether
// it is.
bool WorkerIterations::State::stop_retries() {
  if (!parts.setup.interrupted || !parts.setup.interrupted()) return false;
  for (const auto& [number, m] : parts.membership.members()) m.stop_retries();
  return true;
}

// Returns when the record of iteration `target` has arrived. Iterations up to `last` may be begun.
void WorkerIterations::State::advance(int64_t target, int64_t last) {
  const IterationRecords& records = parts.records;
  events.begin_waiting();
  const TimeLimit patience(kPatience);
  bool stopping = false;
  while (records.received() < target) {
    const int64_t granted = records.granted(), received = records.received();
    const bool growing = parts.membership.changes();
    if (parts.group.broken() || (growing && granted == received)) {
      formation.regroup();
      continue;
    }
    // The workers have halted because they waited for data.
    if (stopping && granted == received && target > parts.records.taken()) {
      throw Cancelled("[training] stopped while the workers waited for data");
    }
    const double each = std::max(records.seconds(), 1e-6);
    const int64_t ahead = std::clamp(static_cast<int64_t>(kAhead / each), kLeastAhead, kMostAhead);
    const int64_t to = growing ? granted : std::min(last, received + ahead);
    // Several at a time, unless the workers wait for the next one.
    if (to > granted && (granted == received || to - granted >= ahead / 2 || to == last)) grant(to);
    events.await_progress();
    stopping = stopping || (patience.reached() && stop_retries());
  }
}

WorkerIterations::WorkerIterations(const IterationsSetup& setup,
                                   const Call<TrainingProblem>& problem,
                                   const TrainingWorkers& workers)
    : state_(std::make_unique<State>(setup, problem, workers)) {}

WorkerIterations::~WorkerIterations() = default;

void WorkerIterations::share(const TrainingImages& images) { state_->parts.hosts.share(images); }

void WorkerIterations::attend() {
  while (state_->events.step(0)) {
  }
}

void WorkerIterations::begin(const IterationsStart& start) {
  State& s = *state_;
  WorkerParts& parts = s.parts;
  s.network = &start.network;
  s.solver = &start.solver;
  s.pool = &start.pool;
  auto evaluator = make_validation(start.network, start.images, parts.setup.data,
                                   parts.setup.options, start.pool, start.metrics);
  parts.state.begin(start.network, start.solver, start.first - 1);
  parts.records.begin(start.first);
  parts.validation.prepare(std::move(evaluator));
  parts.hosts.begin(parts.state.ranges(), parts.validation.range(), parts.validation.scores());
  s.formation.regroup();
}

IterationOutcome WorkerIterations::next(int64_t iteration, int64_t last) {
  State& s = *state_;
  if (!s.parts.records.has(iteration)) s.advance(iteration, last);
  return s.parts.records.take(iteration);
}

int64_t WorkerIterations::begun() const {
  const IterationRecords& records = state_->parts.records;
  return std::max(records.granted(), records.taken());
}

Evaluation WorkerIterations::validate() {
  State& s = *state_;
  WorkerValidation& validation = s.parts.validation;
  PresentGroup& group = s.parts.group;
  const int64_t taken = s.parts.records.taken();
  for (;;) {
    if (group.broken() || s.parts.membership.changes()) s.formation.regroup();
    // After a loss some iterations may have to be done again.
    s.advance(taken, taken);
    validation.begin(group.ranks());
    s.order_all(ValidateOrder{group.generation()});
    int64_t seen = -1;
    const TimeLimit patience(kPatience);
    while (!group.broken() && !validation.awaited()->empty()) {
      const int64_t begun = validation.batches_begun();
      if (begun != seen) s.events.progressed();
      seen = begun;
      s.events.await_progress();
      if (patience.reached()) s.stop_retries();
    }
    validation.stop_waiting();
    if (!group.broken()) {
      if (auto result = validation.collect()) {
        s.validated = taken;
        return *result;
      }
    }
    // The remaining workers take no further batch. A host that has not answered is soon reported as
    // lost.
    validation.call_off();
    if (!group.broken()) s.events.await_progress();
  }
}

std::optional<NotFinite> WorkerIterations::not_finite() {
  State& s = *state_;
  if (s.validated == s.parts.records.taken()) return s.parts.validation.not_finite();
  fetch();
  return find_not_finite(*s.network, *s.solver, *s.pool);
}

void WorkerIterations::fetch() {
  State& s = *state_;
  const int64_t taken = s.parts.records.taken();
  while (s.parts.state.iteration() != taken) {
    if (s.parts.group.broken()) s.formation.regroup();
    s.advance(taken, taken);
    s.formation.publish(s.parts.group.ranks().front());
  }
  s.parts.state.read(*s.network, *s.solver);
}

std::vector<int64_t> WorkerIterations::shards() const {
  state_->parts.hosts.collect_statuses();
  std::vector<int64_t> all;
  for (const auto& [number, m] : state_->parts.membership.members()) {
    if (m.pid != 0) all.push_back(m.status().computed.load());
  }
  return all;
}

std::vector<WorkerSummary> WorkerIterations::workers(bool exact) const {
  if (exact) state_->parts.hosts.collect_statuses();
  return state_->parts.membership.summaries();
}

}  // namespace lockstep
