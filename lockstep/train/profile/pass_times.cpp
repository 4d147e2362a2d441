#include "lockstep/train/profile/pass_times.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/numeric/arithmetic.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A plan may reuse the memory of its inputs, so they are set to zero before each run.
void clear_inputs(PlanRun& run) {
  for (int i = 0; i < run.inputs(); ++i) std::memset(run.input(i), 0, run.input_bytes(i));
}

}  // namespace

void PassTimes::passed(size_t pass) {
  const auto now = Clock::now();
  seconds_[pass].push_back(std::chrono::duration<double>(now - last_).count());
  last_ = now;
}

double PassTimes::median(size_t pass) {
  std::vector<double>& all = seconds_[pass];
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

std::vector<PassTimes> time_passes(ThreadPool& pool, const Plan& plan,
                                   const std::vector<PlanRun*>& runs, const RandomContext& step) {
  constexpr int kMost = 25, kLeast = 3;
  constexpr double kSeconds = 0.5;
  std::vector<PassTimes> times(runs.size(), PassTimes(plan.passes().size()));
  const auto begin = Clock::now();
  pool.run([&](int thread) {
    if (thread >= static_cast<int>(runs.size())) return;
    const ArithmeticMode mode;
    PassTimes& own = times[static_cast<size_t>(thread)];
    PlanRun& run = *runs[static_cast<size_t>(thread)];
    for (int repeat = 0; repeat < kMost; ++repeat) {
      if (repeat >= kLeast && seconds_since(begin) > kSeconds) return;
      clear_inputs(run);
      own.begin();
      run.forward(step, &own);
      if (run.plan().kept_part() != nullptr) {
        run.backward_rest(step, &own);
      } else {
        run.backward(step, &own);
      }
    }
  });
  return times;
}

void PassFloors::add(const std::vector<int>& accounts, double calls, std::vector<PassTimes> times) {
  for (size_t pass = 0; pass < accounts.size(); ++pass) {
    Sum& sum = sums_[accounts[pass]];
    for (PassTimes& of : times) {
      if (!of.timed(pass)) continue;
      sum.seconds += calls * of.median(pass);
      sum.calls += calls;
    }
  }
}

void PassFloors::set(IterationProfiler& profiler) const {
  for (const auto& [account, sum] : sums_) {
    if (sum.calls > 0) profiler.set_floor(account, sum.seconds / sum.calls);
  }
}

}  // namespace lockstep
