#include "lockstep/runs/sweeps/thread_shares.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr int64_t least_iterations = 20;  // for a rate
// More threads must make a run at least so much faster to be worth their processor.
constexpr double least_gain = 1.05;

}  // namespace

void ThreadShares::note(const TrialRun& run, int64_t shards, int64_t threads, int64_t iterations,
                        double rate) {
  if (shards < 1) return;
  auto [entry, is_new] = known_.try_emplace(key_of(run));
  Known& known = entry->second;
  known.shards = std::min(shards, threads_);
  if (is_new) known.most = known.shards;
  // The count begins again with other threads and in the next rung.
  if (threads != known.threads || iterations < known.iterations) known.since = 0;
  known.threads = threads;
  known.iterations = iterations;
  if (iterations - known.since < least_iterations || rate <= 0) return;
  known.rates[threads] = rate;
  const auto here = known.rates.find(threads);
  if (here == known.rates.begin() || threads > known.most) return;
  const auto fewer = std::prev(here);
  if (rate < least_gain * fewer->second) known.most = fewer->first;
}

// Runs slow each other down, so a rate measured with other runs is not compared with one with fewer
// or more of them. That a number of threads was faster than a smaller one stays true.
void ThreadShares::measure_again() {
  for (auto& [key, known] : known_) {
    if (!known.rates.empty()) known.proven = std::min(known.most, known.rates.rbegin()->first);
    known.rates.clear();
    known.most = known.shards;
    known.since = known.iterations;
  }
}

int64_t ThreadShares::most_of(const TrialRun& run) const {
  const auto found = known_.find(key_of(run));
  // Runs of new trials prepare with one thread.
  if (found == known_.end()) return 1;
  const Known& known = found->second;
  // At most twice as many as have shown their rate, or as many as before.
  const int64_t measured = known.rates.empty() ? 1 : 2 * known.rates.rbegin()->first;
  return std::min(known.most, std::max(known.proven, measured));
}

std::vector<int64_t> ThreadShares::divide(const std::vector<TrialRun>& runs) {
  if (runs.size() != together_) measure_again();
  together_ = runs.size();
  std::vector<int64_t> shares(runs.size(), 1);
  int64_t left = threads_ - static_cast<int64_t>(runs.size());
  while (left > 0) {
    size_t chosen = runs.size();
    for (size_t i = 0; i < runs.size(); ++i) {
      if (shares[i] < most_of(runs[i]) && (chosen == runs.size() || shares[i] < shares[chosen])) {
        chosen = i;
      }
    }
    if (chosen == runs.size()) break;
    ++shares[chosen];
    --left;
  }
  return shares;
}

}  // namespace lockstep
