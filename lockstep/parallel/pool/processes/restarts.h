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
// tolerated; fewer are if each attempt takes long, such as a connection to a host that does not
// answer. The same for processes of this machine and of others. One thread at a time.
class Restarts {
 public:
  // `patience`: seconds of failures after which few attempts are enough to give up.
  explicit Restarts(double patience = 15) : patience_(patience) {}

  void plan(int index) {
    const auto failed = failed_.find(index);
    planned_.emplace_back(index,
                          TimeLimit(failed == failed_.end() ? 0 : delay(failed->second.all)));
  }
  // A process ended before it was ready; plans the next. Returns true once too many in a row have
  // failed, and after each further failure: tasks that wait for this worker must then fail.
  // `hopeless`: a replacement would fail the same way, so one failure is enough (see WorkerEnd).
  bool plan_after_failure(int index, bool outside, bool hopeless = false) {
    Failed& failed = failed_.try_emplace(index, patience_).first->second;
    ++failed.all;
    if (!outside) ++failed.by_themselves;
    plan(index);
    const int most = failed.long_ago.reached() ? kHopelessIfSlow : kHopeless;
    if (hopeless || failed.by_themselves >= most || failed.all >= kHopelessOutside) {
      failed.given_up = true;
    }
    return failed.given_up;
  }
  // Whether tasks need not wait for this worker: plan_after_failure() has returned true, and it has
  // not succeeded since. It is still replaced.
  bool given_up(int index) const {
    const auto failed = failed_.find(index);
    return failed != failed_.end() && failed->second.given_up;
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
  static constexpr int kAtOnce = 3, kHopeless = 8, kHopelessIfSlow = 3, kHopelessOutside = 30;
  struct Failed {
    explicit Failed(double patience) : long_ago(patience) {}
    int all = 0, by_themselves = 0;
    bool given_up = false;
    TimeLimit long_ago;  // since the first of them
  };

  // Seconds: 0.1, 0.2, 0.4, ... 6.4.
  static double delay(int failed) {
    return failed < kAtOnce ? 0 : 0.1 * static_cast<double>(1 << std::min(failed - kAtOnce, 6));
  }

  const double patience_;
  std::map<int, Failed> failed_;  // failures in a row
  std::vector<std::pair<int, TimeLimit>> planned_;
};

}  // namespace lockstep::detail
