// A shard computed once more by others, now and then: that finds faults of hardware, and layers
// that keep a state without saying so. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/comm/tree.h"

namespace lockstep {

// Which shard is computed again, and by whom.
struct ShardCheck {
  int64_t shard = 0;
  int owner = 0;  // the rank whose shard it is
  // Ranks that compute it again: two others. Of two members both do, and the other once more; one
  // alone does.
  std::vector<int> checkers;
  // What one rank may get: as the owner, and twice more.
  static constexpr size_t kMostResults = 3;
  // How often a rank computes it again; at most twice.
  int64_t times(int rank) const;
};

// The check that is due in an iteration (from 1): every `frequency`-th, of one shard after the
// other; 0: none. `dealt`: the shards of each rank. A function of its arguments.
std::optional<ShardCheck> check_due(int64_t iteration, int64_t frequency,
                                    const std::vector<LeafRun>& dealt);

// What somebody got: a digest of each learnable's gradient, in their order, and of the rest.
using ShardDigests = std::vector<Digest>;

// Those who computed the same shard got different bits.
class ShardsDiffer : public Error {
 public:
  ShardsDiffer(int64_t iteration, int64_t shard, std::vector<int> faulty, const std::string& what);

  int64_t iteration() const { return iteration_; }
  int64_t shard() const { return shard_; }
  // Ranks that got something else than the majority; none where there is no majority.
  const std::vector<int>& faulty() const { return faulty_; }

 private:
  int64_t iteration_, shard_;
  std::vector<int> faulty_;
};

// Throws ShardsDiffer unless all are the same. `results`: by the owner, then by the checkers.
// `learnables`: their names.
void compare_results(int64_t iteration, const ShardCheck& check,
                     const std::vector<ShardDigests>& results,
                     const std::vector<std::string>& learnables);
// The same of what the members told: `told(rank)` is what it got as the owner, and behind that what
// it got each time that it computed the shard again, with room for kMostResults.
void compare_results(int64_t iteration, const ShardCheck& check,
                     const std::vector<std::string>& learnables,
                     const std::function<const Digest*(int rank)>& told);

}  // namespace lockstep
