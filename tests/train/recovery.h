// Helpers for tests of failing workers: a long training and its observer.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/trainer.h"
#include "tests/train/hosts.h"
#include "tests/train/law_problem.h"

namespace lockstep::testing {

// Where and how a worker fails.
struct Failure {
  std::string point;      // of fail_point(); "": nowhere
  std::string how;        // "kill", "fault", "stop", "hang", "throw", ...
  uint32_t worker = 0;    // its number; 0: every worker
  int64_t iteration = 0;  // of the failure; -1: any
  int64_t shard = -1;     // of the failure; -1: any
  std::string host = {};  // LOCKSTEP_TEST_HOST there; "": any
  std::string file = {};  // counts the failures

  template <class Archive>
  void serialize(Archive& archive) {
    archive(point, how, worker, iteration, shard, host, file);
  }
};

// In a worker: the failure that it must produce.
inline Failure& failure() {
  static Failure f;
  return f;
}

// How often "be killed" happens.
inline constexpr int kKillsOfAShard = 10;

// In a worker: it will fail so at the fail points.
void fail_here(Failure failure);

// The problem of the tests of the law. A worker that makes it will fail so, now if the point is
// "problem".
TrainingProblem failing_problem(Failure f);

// Longer than the tests of the law: 60 epochs of 4 iterations.
inline TrainingOptions long_options(int64_t workers, int64_t epochs = 60) {
  TrainingOptions options = law_options(1);
  options.max_epochs = epochs;
  options.workers.count = workers;
  return options;
}

// Observes a training. Counts observations and records process ids.
class Follower : public TrainingObserver {
 public:
  void iteration(const IterationRecord& r) override {
    EXPECT_EQ(r.iteration, last + 1) << "an iteration was told twice, or not at all";
    last = r.iteration;
    observations[r.epoch] += r.observations_count;
    if (on_iteration) on_iteration(r);
  }
  void worker(const WorkerChange& c) override {
    changes.push_back(c);
    if (c.joined) {
      present[c.worker] = static_cast<pid_t>(c.pid);
    } else {
      present.erase(c.worker);
    }
  }

  // The process of the present worker with the smallest number.
  pid_t first_present() const {
    if (present.empty()) throw Error("[test] no worker is present");
    return present.begin()->second;
  }

  int64_t last = 0;
  std::map<int64_t, int64_t> observations;  // by epoch
  std::map<uint32_t, pid_t> present;
  std::vector<WorkerChange> changes;
  std::function<void(const IterationRecord&)> on_iteration;
};

inline std::vector<WorkerChange> losses(const Follower& follower) {
  std::vector<WorkerChange> all;
  for (const auto& c : follower.changes) {
    if (!c.joined && !c.left) all.push_back(c);
  }
  return all;
}

// The result of one process.
inline const TrainingResult& undisturbed(int64_t epochs) {
  static std::map<int64_t, TrainingResult> results;
  if (results.count(epochs) == 0) {
    TrainingOptions options = law_options(2);
    options.max_epochs = epochs;
    TrainingProblem problem = law_problem();
    results[epochs] = train(problem.network, problem.data, options);
  }
  return results[epochs];
}

inline void expect_undisturbed(const TrainingResult& result, const Follower& follower,
                               int64_t epochs) {
  EXPECT_EQ(result.digest, undisturbed(epochs).digest);
  EXPECT_EQ(result.network_digest, undisturbed(epochs).network_digest);
  EXPECT_EQ(result.iterations.back().chain, undisturbed(epochs).iterations.back().chain);
  ASSERT_EQ(result.validations.size(), undisturbed(epochs).validations.size());
  for (size_t i = 0; i < result.validations.size(); ++i) {
    EXPECT_EQ(result.validations[i].loss, undisturbed(epochs).validations[i].loss);
  }
  EXPECT_EQ(follower.observations.size(), static_cast<size_t>(epochs));
  for (const auto& [epoch, count] : follower.observations) EXPECT_EQ(count, 370) << epoch;
}

// Trains the problem of the tests of the law by workers that fail so.
TrainingResult run_with_failure(const TrainingOptions& options, Follower& follower,
                                const Failure& f = {}, TrainingControl control = {});

}  // namespace lockstep::testing
