#include "lockstep/train/workers/worker_iterations.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/train/state/state_area.h"
#include "lockstep/train/workers/membership.h"

namespace lockstep {
namespace {

using Clock = TimeLimit::Clock;

// Workers are granted iterations for so many seconds ahead, within these bounds.
constexpr double kAhead = 0.1;
constexpr int64_t kLeastAhead = 2, kMostAhead = 16;

}  // namespace

struct WorkerIterations::State : WorkerMembership {
  using WorkerMembership::WorkerMembership;

  Network* network = nullptr;
  Solver* solver = nullptr;
  std::unique_ptr<Evaluator> evaluator;

  Clock::time_point looked = Clock::now();

  void await_progress();
  void advance(int64_t target, int64_t last);
};

// One event, or a tenth of a second; who makes no progress is ended.
void WorkerIterations::State::await_progress() {
  const auto now = Clock::now();
  // Time in which this process did not look, because it was stopped perhaps, does not count.
  constexpr double kLook = 0.1, kGap = 1;
  const double gap = std::chrono::duration<double>(now - looked).count();
  looked = now;
  if (gap > kGap) progress = std::max(progress, now);
  const double left = limit() - std::chrono::duration<double>(now - progress).count();
  if (step(std::clamp(left, 0.001, kLook)) || left > 0) return;
  end_hanging();
}

// Until the record of iteration `target` has arrived; those up to `last` may be begun.
void WorkerIterations::State::advance(int64_t target, int64_t last) {
  looked = Clock::now();
  progress = std::max(progress, looked);
  while (received < target) {
    const bool growing = joiners();
    if (broken || (growing && granted == received)) {
      regroup();
      continue;
    }
    const double each = std::max(iteration_seconds, 1e-6);
    const int64_t ahead = std::clamp(static_cast<int64_t>(kAhead / each), kLeastAhead, kMostAhead);
    const int64_t to = growing ? granted : std::min(last, received + ahead);
    // Several at a time, unless they wait for it.
    if (to > granted && (granted == received || to - granted >= ahead / 2 || to == last)) {
      GrantOrder grant{.generation = generation, .first = granted + 1, .learning_rates = {}};
      for (int64_t i = granted + 1; i <= to; ++i) {
        grant.learning_rates.push_back(setup.learning_rate(i));
      }
      granted = to;
      for (const uint32_t worker : ranks) {
        if (!order(worker, grant)) workers.kill(worker, "");
      }
    }
    await_progress();
  }
}

WorkerIterations::WorkerIterations(const WorkerIterationsSetup& setup)
    : state_(std::make_unique<State>(setup)) {}

WorkerIterations::~WorkerIterations() {
  State& s = *state_;
  if (s.validating) s.call_off_batches();
}

void WorkerIterations::attend() {
  while (state_->step(0)) {
  }
}

void WorkerIterations::share(const TrainingImages& images) {
  State& s = *state_;
  const SharedImages& places = s.begin.images = share_images(images, s.memory);
  for (const SharedPlace& place :
       {places.training, places.targets, places.validation, places.validation_targets}) {
    if (place.bytes > 0) s.reserved.emplace_back(s.memory, place);
  }
}

void WorkerIterations::begin(Network& network, Solver& solver, std::unique_ptr<Evaluator> evaluator,
                             int64_t first) {
  State& s = *state_;
  s.network = &network;
  s.solver = &solver;
  s.evaluator = std::move(evaluator);
  const size_t bytes = state_bytes(network, solver);
  for (int i = 0; i < 2; ++i) {
    s.begin.states[i] = s.reserve(bytes);
    s.states[i] = s.memory.map(s.begin.states[i]);
  }
  write_state(network, solver, s.states[0].get());
  s.published_iteration = s.granted = s.received = s.taken = first - 1;
  if (s.evaluator) {
    s.begin.scores = s.evaluator->wants_scores();
    s.begin.evaluation = s.reserve(s.evaluator->area_bytes(s.begin.scores));
    s.evaluation = s.memory.map(s.begin.evaluation);
  }
  s.may_prepare = true;
  s.regroup();
}

IterationOutcome WorkerIterations::next(int64_t iteration, int64_t last) {
  State& s = *state_;
  if (s.records.count(iteration) == 0) s.advance(iteration, last);
  const IterationOutcome outcome = s.records.at(iteration);
  s.records.erase(iteration);
  s.taken = iteration;
  return outcome;
}

int64_t WorkerIterations::begun() const { return std::max(state_->granted, state_->taken); }

Evaluation WorkerIterations::validate() {
  State& s = *state_;
  for (;;) {
    if (s.broken || s.joiners()) s.regroup();
    // After a loss some iterations may have to be done again.
    s.advance(s.taken, s.taken);
    s.partition_batches(*s.evaluator);
    s.validating.emplace(s.ranks.begin(), s.ranks.end());
    for (const uint32_t worker : s.ranks) {
      if (!s.order(worker, ValidateOrder{s.generation})) s.workers.kill(worker, "");
    }
    int64_t seen = -1;
    while (!s.broken && !s.validating->empty()) {
      const int64_t begun = s.batches_begun();
      if (begun != seen) s.progress = std::max(s.progress, Clock::now());
      seen = begun;
      s.await_progress();
    }
    s.validating.reset();
    if (!s.broken && s.collect_batches(*s.evaluator)) {
      return s.evaluator->result(s.evaluation.get());
    }
    // Who is left takes no further batch; a host that has not answered is soon told as lost.
    s.call_off_batches();
    if (!s.broken) s.await_progress();
  }
}

void WorkerIterations::fetch() {
  State& s = *state_;
  while (s.published_iteration != s.taken) {
    if (s.broken) s.regroup();
    s.advance(s.taken, s.taken);
    s.publish(s.ranks.front());
  }
  read_state(s.states[s.published].get(), *s.network, *s.solver);
}

std::vector<int64_t> WorkerIterations::shards() const {
  state_->collect_statuses();
  std::vector<int64_t> all;
  for (const auto& [number, m] : state_->members) {
    if (m.pid != 0) all.push_back(m.status().computed.load());
  }
  return all;
}

std::vector<WorkerSummary> WorkerIterations::summaries() const {
  state_->collect_statuses();
  std::vector<WorkerSummary> all = state_->lost_workers;
  for (const auto& [number, m] : state_->members) {
    // Some may have had other things to do all the time.
    if (m.pid != 0) all.push_back({number, m.pid, m.status().computed.load(), false});
  }
  std::sort(all.begin(), all.end(),
            [](const WorkerSummary& a, const WorkerSummary& b) { return a.worker < b.worker; });
  return all;
}

}  // namespace lockstep
