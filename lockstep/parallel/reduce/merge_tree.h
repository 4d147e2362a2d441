// The fixed tree (see tree.h) over states of any type.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/reduce/tree.h"

namespace lockstep {

// Merges states of leaves that arrive in any order, from any thread. The thread that adds the
// second of two siblings merges them and continues upwards, so that few states are kept at a time.
template <class State>
class MergeTree {
 public:
  // Merges the right state into the left one. Called without locks, by several threads.
  using Merge = std::function<void(State& left, State& right)>;

  MergeTree(int64_t leaves, Merge merge) : leaves_(leaves), merge_(std::move(merge)) {
    if (leaves < 1) throw InvalidArgument("[tree] at least one leaf is required");
  }

  // Adds the state of leaf number `leaf`; once for each leaf.
  void add(int64_t leaf, State state) {
    std::vector<IndexRange> path{{0, leaves_}};  // from the root down to the leaf
    while (path.back().count > 1) {
      const IndexRange at = path.back();
      const int64_t left = tree_split(at.count);
      path.push_back(leaf < at.first + left ? IndexRange{at.first, left}
                                            : IndexRange{at.first + left, at.count - left});
    }
    for (size_t depth = path.size() - 1; depth > 0; --depth) {
      const IndexRange parent = path[depth - 1];
      const bool is_left = path[depth].first == parent.first;
      std::optional<State> sibling;
      {
        const MutexLock lock(mutex_);
        const auto key = std::pair{parent.first, parent.count};
        const auto found = waiting_.find(key);
        if (found == waiting_.end()) {
          waiting_.emplace(key, std::move(state));
          return;
        }
        sibling = std::move(found->second);
        waiting_.erase(found);
      }
      if (!is_left) std::swap(state, *sibling);
      merge_(state, *sibling);
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
  int64_t leaves_;
  Merge merge_;
  Mutex mutex_;
  // By their parent node.
  std::map<std::pair<int64_t, int64_t>, State> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<State> result_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
