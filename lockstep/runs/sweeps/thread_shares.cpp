#include "lockstep/runs/sweeps/thread_shares.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr int64_t least_iterations = 10;  // for a rate
// More threads must make a run at least so much faster to be worth their processor.
constexpr double least_gain = 1.05;

}  // namespace

void ThreadShares::note(const TrialRun& run, int64_t shards, int64_t threads, int64_t iterations,
                        double rate) {
  if (shards < 1) return;
  auto [entry, is_new] = known_.try_emplace(run);
  Known& known = entry->second;
  if (is_new) known.most = std::min(shards, threads_);
  if (iterations < least_iterations || rate <= 0) return;
  known.rates[threads] = rate;
  const auto here = known.rates.find(threads);
  if (here == known.rates.begin() || threads > known.most) return;
  const auto fewer = std::prev(here);
  if (rate < least_gain * fewer->second) known.most = std::max<int64_t>(1, fewer->first);
}

std::vector<int64_t> ThreadShares::divide(const std::vector<TrialRun>& runs) const {
  std::vector<int64_t> shares(runs.size(), 1);
  int64_t left = threads_ - static_cast<int64_t>(runs.size());
  while (left > 0) {
    size_t chosen = runs.size();
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto known = known_.find(runs[i]);
      // Runs that have not begun prepare with one thread.
      const int64_t most = known == known_.end() ? 1 : known->second.most;
      if (shares[i] < most && (chosen == runs.size() || shares[i] < shares[chosen])) chosen = i;
    }
    if (chosen == runs.size()) break;
    ++shares[chosen];
    --left;
  }
  return shares;
}

}  // namespace lockstep
