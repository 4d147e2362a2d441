// The fixed tree (schedule.h) over states of any type.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {

// Merges states of leaves that arrive in any order, from any thread. The thread that adds the
// second of two siblings merges them and continues upwards, so that few states are kept at a time.
template <class State>
class MergeTree {
 public:
  // Merges the right state into the left one. Called without locks, by several threads.
  using Merge = std::function<void(State& left, State& right)>;

  MergeTree(int64_t leaves, Merge merge)
      : nodes_(sum_terms({0, leaves})), merge_(std::move(merge)) {
    if (leaves < 1) throw InvalidArgument("[tree] at least one leaf is required");
  }

  // Adds the state of leaf number `leaf`; once for each leaf.
  void add(int64_t leaf, State state) {
    SumNodes::Parent at = nodes_.of_terms[static_cast<size_t>(leaf)];
    while (at.addition >= 0) {
      std::optional<State> sibling;
      {
        const MutexLock lock(mutex_);
        const auto found = waiting_.find(at.addition);
        if (found == waiting_.end()) {
          waiting_.emplace(at.addition, std::move(state));
          return;
        }
        sibling = std::move(found->second);
        waiting_.erase(found);
      }
      if (!at.left) std::swap(state, *sibling);
      merge_(state, *sibling);
      at = nodes_.of_additions[static_cast<size_t>(at.addition)];
    }
    const MutexLock lock(mutex_);
    result_ = std::move(state);
  }

  // The merged state, once all leaves were added.
  State take() {
    const MutexLock lock(mutex_);
    if (!result_) throw InvalidArgument("[tree] leaves are missing");
    return *std::exchange(result_, std::nullopt);
  }

 private:
  const SumNodes nodes_;
  Merge merge_;
  Mutex mutex_;
  std::map<int, State> waiting_ LOCKSTEP_GUARDED_BY(mutex_);  // by the addition that takes it
  std::optional<State> result_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
