// Repeated computation of single shards by other members. It finds hardware faults and layers with
// undeclared state. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {

// The shard that is computed again, and the ranks that compute it.
struct ShardCheck {
  int64_t shard = 0;
  int owner = 0;  // the rank whose shard it is
  // The ranks that compute it again: two other ranks. In a group of two: the owner once and the
  // other rank twice. A single member: the owner once.
  std::vector<int> checkers;
  // The most results of one rank: one as the owner, and two repetitions.
  static constexpr size_t kMostResults = 3;
  // How often a rank computes the shard again; at most twice.
  int64_t times(int rank) const;
};

// Returns the check of an iteration (from 1), if one is due: every `frequency` iterations, of one
// shard after the other; 0: never. `partition`: the shards of each rank. The result depends on the
// arguments only.
std::optional<ShardCheck> check_due(int64_t iteration, int64_t frequency,
                                    const std::vector<IndexRange>& partition);

// The results of one computation: a digest of each parameter's gradient, in order, then one of the
// rest.
using ShardDigests = std::vector<Digest>;

// Throws ShardsDiffer unless all results are equal. `results`: the owner's, then the checkers'.
// `parameters`: the names of the parameters.
void compare_results(int64_t iteration, const ShardCheck& check,
                     const std::vector<ShardDigests>& results,
                     const std::vector<std::string>& parameters);
// Same, for results in the members' memory. `result_of(rank)`: the result of the rank as the owner,
// followed by the results of its repetitions, with space for kMostResults.
void compare_results(int64_t iteration, const ShardCheck& check,
                     const std::vector<std::string>& parameters,
                     const std::function<const Digest*(int rank)>& result_of);

}  // namespace lockstep
