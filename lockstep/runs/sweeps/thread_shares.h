// How the processors of a machine are divided among the runs of a sweep. Threads of idle workers go
// to the others, where they make these faster. The division changes no results.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/runs/sweeps/schedule.h"

namespace lockstep {

// Not thread-safe.
class ThreadShares {
 public:
  // `threads`: of all runs together.
  explicit ThreadShares(int64_t threads) : threads_(threads) {}

  // A run with `shards` in a mini-batch has computed `iterations` with `threads`, at a rate
  // (observations per second).
  void note(const TrialRun& run, int64_t shards, int64_t threads, int64_t iterations, double rate);

  // Threads for each run, at least one. A run gets no more than it has shards, and no more than
  // have made it faster. The first runs come first.
  std::vector<int64_t> divide(const std::vector<TrialRun>& runs) const;

 private:
  struct Known {
    int64_t most = 1;                      // threads that are useful
    std::map<int64_t, double> rates = {};  // by threads
  };

  const int64_t threads_;
  std::map<TrialRun, Known> known_;
};

}  // namespace lockstep
