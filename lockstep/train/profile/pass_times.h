// Times of the passes of plans when no other work runs.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/profile/iteration_profiler.h"

namespace lockstep {

// Seconds of each pass, over successive runs of one plan by one thread.
class PassTimes final : public PassWatch {
 public:
  explicit PassTimes(size_t passes) : seconds_(passes) {}
  void begin() { last_ = std::chrono::steady_clock::now(); }
  void passed(size_t pass) override;
  // Whether the pass has been timed; median() needs it.
  bool timed(size_t pass) const { return !seconds_[pass].empty(); }
  double median(size_t pass);

 private:
  std::vector<std::vector<double>> seconds_;
  std::chrono::steady_clock::time_point last_;
};

// Runs all `runs` of one plan at once, each in the thread with its index: forward, then backward.
// Repeats this for half a second, but at least three times. Inputs are zeros. Returns the times of
// each run.
std::vector<PassTimes> time_passes(ThreadPool& pool, const Plan& plan,
                                   const std::vector<PlanRun*>& runs, const RandomContext& step);

// The floors (ProfileAccount::floor) of accounts. Several plans may share an account.
class PassFloors {
 public:
  // `accounts`: of the plan's passes. `calls`: the runs of the plan that the profiler has counted.
  void add(const std::vector<int>& accounts, double calls, std::vector<PassTimes> times);
  void set(IterationProfiler& profiler) const;

 private:
  struct Sum {
    double seconds = 0, calls = 0;
  };
  std::map<int, Sum> sums_;  // by account
};

}  // namespace lockstep
