// Decides when a pool's lost processes are replaced.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/base/time_limit.h"

namespace lockstep::detail {

// Replacement times by worker index. A process that has ended is replaced at once. If several in a
// row end before they are ready, the first few are replaced at once and the others after growing
// delays. Ends caused from outside say little about the next process, so more of them are
// tolerated. One thread at a time.
class Restarts {
 public:
  void plan(int index) { planned_.emplace_back(index, TimeLimit(delay(failed_[index].all))); }
  // A process ended before it was ready; plans the next. Returns true once too many in a row have
  // failed, and after each further failure: tasks that wait for this worker must then fail.
  bool plan_after_failure(int index, bool outside) {
    Failed& failed = failed_[index];
    ++failed.all;
    if (!outside) ++failed.by_themselves;
    plan(index);
    return failed.by_themselves >= kHopeless || failed.all >= kHopelessOutside;
  }
  void succeeded(int index) { failed_.erase(index); }

  // Removes and returns the indexes whose replacement is due.
  std::vector<int> take_due() {
    std::vector<int> due;
    std::erase_if(planned_, [&](const auto& entry) {
      if (!entry.second.reached()) return false;
      due.push_back(entry.first);
      return true;
    });
    return due;
  }
  // Seconds until the next replacement is due, at most `most`.
  double wait(double most) const {
    for (const auto& [index, when] : planned_) most = std::min(most, when.left() + 1e-3);
    return most;
  }

 private:
  static constexpr int kAtOnce = 3, kHopeless = 8, kHopelessOutside = 30;
  struct Failed {
    int all = 0, by_themselves = 0;
  };

  // Seconds: 0.1, 0.2, 0.4, ... 6.4.
  static double delay(int failed) {
    return failed < kAtOnce ? 0 : 0.1 * static_cast<double>(1 << std::min(failed - kAtOnce, 6));
  }

  std::map<int, Failed> failed_;  // failures in a row
  std::vector<std::pair<int, TimeLimit>> planned_;
};

}  // namespace lockstep::detail
