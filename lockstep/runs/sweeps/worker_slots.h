// Which workers of a pool compute which run of a sweep, when runs are trainings by lent workers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/runs/sweeps/schedule.h"

namespace lockstep {

// Thread-safe.
class WorkerSlots {
 public:
  // `count` workers. `present`: whether a worker can be used now; workers of a lost host cannot.
  // Empty: all can.
  explicit WorkerSlots(int count, std::function<bool(int slot)> present = {});

  // Gives each run its number of workers if there are enough, and at least one; the first runs
  // come first. Runs keep the workers that they have, and workers of runs that are not listed are
  // free. There must not be more runs than workers.
  void assign(const std::vector<TrialRun>& runs, const std::vector<int64_t>& counts);

  // The workers of a run, in order; none before it is listed.
  std::vector<int> of(const TrialRun& run) const;

 private:
  const int count_;
  const std::function<bool(int slot)> present_;
  mutable Mutex mutex_;
  std::map<TrialRun, std::set<int>> slots_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
