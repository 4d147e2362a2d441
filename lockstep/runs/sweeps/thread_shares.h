// How the processors of a machine are divided among the runs of a sweep. Threads of idle workers go
// to the others, where they make these faster. The division changes no results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
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

  // Threads for each run, at least one; the first runs come first. A run gets no more than it has
  // shards, no more than twice as many as have shown their rate, and no more than have made it
  // faster. When the number of runs changes, rates are measured again; a run keeps the threads that
  // have made it faster, also from one rung to the next.
  std::vector<int64_t> divide(const std::vector<TrialRun>& runs);

 private:
  struct Known {
    int64_t shards = 1;
    int64_t most = 1;                      // threads that may be useful
    int64_t proven = 1;                    // that were useful before the number of runs changed
    int64_t threads = 0, iterations = 0;   // at the last note
    int64_t since = 0;                     // iterations that do not count for a rate
    std::map<int64_t, double> rates = {};  // by threads
  };

  using Key = std::pair<int64_t, int64_t>;  // trial and repeat: all rungs compute one network
  static Key key_of(const TrialRun& run) { return {run.trial, run.repeat}; }
  void measure_again();
  int64_t most_of(const TrialRun& run) const;

  const int64_t threads_;
  size_t together_ = 0;  // runs at the last division
  std::map<Key, Known> known_;
};

}  // namespace lockstep
