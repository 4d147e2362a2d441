// What the passes of plans take when nothing but they runs.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/step_ledger.h"

namespace lockstep {

// Seconds of each pass, of one run after the other. For one thread.
class PassTimes final : public PassWatch {
 public:
  explicit PassTimes(size_t passes) : seconds_(passes) {}
  void begin() { last_ = std::chrono::steady_clock::now(); }
  void passed(size_t pass) override;
  double median(size_t pass);

 private:
  std::vector<std::vector<double>> seconds_;
  std::chrono::steady_clock::time_point last_;
};

// Runs of one plan, each in the thread of its number, all at once: forward and backward, one behind
// the other, at least three times, else for half a second. Inputs are zeros. Returns the times of
// each run.
std::vector<PassTimes> time_passes(ThreadPool& pool, const Plan& plan,
                                   const std::vector<PlanRun*>& runs,
                                   const kernels::StepInfo& step);

// Floors of accounts that several plans may have in common.
class PassFloors {
 public:
  // `accounts` of the plan's passes; `calls`: runs of it that the ledger knows of.
  void add(const std::vector<int>& accounts, double calls, std::vector<PassTimes> times);
  void set(StepLedger& ledger) const;

 private:
  struct Sum {
    double seconds = 0, calls = 0;
  };
  std::map<int, Sum> sums_;  // by account
};

}  // namespace lockstep
