#include "lockstep/runs/sweeps/worker_slots.h"

#include <algorithm>
#include <utility>

namespace lockstep {

WorkerSlots::WorkerSlots(int count, std::function<bool(int slot)> present)
    : count_(count), present_(std::move(present)) {}

void WorkerSlots::assign(const std::vector<TrialRun>& runs, const std::vector<int64_t>& counts) {
  std::set<int> free;
  for (int slot = 0; slot < count_; ++slot) {
    if (!present_ || present_(slot)) free.insert(slot);
  }
  // While hosts start, or too many are lost, runs wait for their workers.
  for (int slot = 0; slot < count_ && free.size() < runs.size(); ++slot) free.insert(slot);
  const MutexLock lock(mutex_);
  std::set<int> kept;  // by runs that are listed
  for (const TrialRun& run : runs) {
    const auto before = slots_.find(run);
    if (before != slots_.end()) kept.insert(before->second.begin(), before->second.end());
  }
  // Idle workers come first, then those of other runs.
  const auto take = [&] {
    const auto idle =
        std::find_if(free.begin(), free.end(), [&](int slot) { return kept.count(slot) == 0; });
    return free.extract(idle != free.end() ? idle : free.begin());
  };
  std::map<TrialRun, std::set<int>> next;
  // At first each run gets one worker, then the others.
  for (const bool first : {true, false}) {
    const auto wanted_by = [&](size_t i) {
      return static_cast<size_t>(first ? 1 : std::max<int64_t>(counts[i], 1));
    };
    for (size_t i = 0; i < runs.size(); ++i) {
      std::set<int>& mine = next[runs[i]];
      const size_t wanted = wanted_by(i);
      const auto before = slots_.find(runs[i]);
      if (before == slots_.end()) continue;
      for (const int slot : before->second) {
        if (mine.size() < wanted && free.erase(slot) > 0) mine.insert(slot);
      }
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      std::set<int>& mine = next[runs[i]];
      const size_t wanted = wanted_by(i);
      while (mine.size() < wanted && !free.empty()) mine.insert(take());
    }
  }
  slots_ = std::move(next);
}

std::vector<int> WorkerSlots::of(const TrialRun& run) const {
  const MutexLock lock(mutex_);
  const auto found = slots_.find(run);
  if (found == slots_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

}  // namespace lockstep
