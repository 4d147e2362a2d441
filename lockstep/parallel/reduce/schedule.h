// The fixed tree: which additions make a sum, so that its bits do not depend on which worker
// computed the terms, or when. Leaves are shards in order. A node over n leaves splits at the
// largest power of two below n. Threads, members of groups and products over several shards follow
// these lists; a device has a kernel for the leaves of one member (sum_leaves) and follows them
// over members.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep {

// Largest power of two below n, for n >= 2.
int64_t tree_split(int64_t n);

// The largest subtrees of the tree over `leaves` that lie within `range`, in order: the
// sums that a worker with only this range can compute.
std::vector<IndexRange> complete_subtrees(int64_t leaves, const IndexRange& range);

// A term of a sum: a leaf, or a subtree that is summed already. It goes onto a stack, on which then
// `additions` times the two topmost sums are replaced by lower + topmost. After the last term the
// stack holds the sum alone.
struct SumTerm {
  IndexRange leaves;
  int additions = 0;
};

// The terms of a node's sum, in order of leaves. `whole`: whether the node is a term itself; leaves
// always are. Without it all terms are leaves.
std::vector<SumTerm> sum_terms(const IndexRange& node,
                               const std::function<bool(const IndexRange& node)>& whole = {});

// The additions over leaves that the members of a group divide: of each member the subtrees that it
// sums itself, and what is left to add then.
struct SumSchedule {
  // `ranges`: the leaves of each member, by rank; all leaves, in order.
  explicit SumSchedule(std::vector<IndexRange> ranges);
  // One sum for each member, which are added by rank: for leaves that are added in order of arrival
  // (deterministic = false).
  static SumSchedule by_rank(std::vector<IndexRange> ranges);

  int64_t leaves = 0;
  std::vector<IndexRange> ranges;
  std::vector<std::vector<IndexRange>> subtrees;  // by rank, in order
  // A subtree of all members', in order of leaves.
  struct Term {
    int rank = 0;
    size_t number = 0;  // of the subtree, among those of the member
    int additions = 0;  // see SumTerm
  };
  std::vector<Term> terms;

 private:
  SumSchedule() = default;
};

// The same additions, seen from the terms: an addition waits for two terms or additions.
struct SumNodes {
  explicit SumNodes(std::span<const SumTerm> terms);

  struct Parent {
    int addition = -1;  // number of the addition that takes it; -1: it is the sum
    bool left = false;
  };
  std::vector<Parent> of_terms, of_additions;
};

// Sum of values by the fixed tree, in double; 0 for no values.
double tree_sum(std::span<const double> values);

}  // namespace lockstep
