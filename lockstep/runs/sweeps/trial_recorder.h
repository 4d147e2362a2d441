// Records the runs of a sweep in the run store, and in their folders that they were pruned, from
// the process that runs the sweep: workers, which may be on other hosts, write the rest of the
// folders.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "lockstep/runs/sweeps/driver.h"

namespace lockstep {

// Problems of the store never end a sweep: `notice` receives the first one.
class TrialRecorder : public SweepObserver {
 public:
  // `store` is the folder of the store ("": none), `sweep` that of the sweep.
  TrialRecorder(std::string store, std::string sweep,
                std::function<void(const std::string& text)> notice);

  void decision(int64_t number, const SweepDecision& what) override;
  void progress(const TrialProgress& progress) override;
  void result(const TrialResult& result) override;
  void fault(const TrialRun& run, const std::string& reason) override;

 private:
  bool has_run(int64_t trial, int64_t repeat) const;
  // Returns whether the state was written: not if it is there already.
  bool mark_pruned(const std::string& folder, const std::string& what);
  void record(int64_t trial, int64_t repeat);

  const std::string store_, sweep_;
  const std::function<void(const std::string& text)> notice_;
  std::set<std::pair<int64_t, int64_t>> running_;  // trial and repeat
  bool told_ = false, told_of_folder_ = false;
};

}  // namespace lockstep
