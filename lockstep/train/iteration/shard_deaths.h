// Finds shards whose computation ends the worker process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

// A shard of an iteration.
using ShardOfIteration = std::pair<int64_t, int64_t>;

// Counts workers that ended by their own fault, for each shard that was being computed. With
// several threads most of these shards are not the cause. A shard that was present at two such ends
// is computed alone from then on, and only a shard that was alone is convicted. One thread at a
// time.
class ShardDeaths {
 public:
  // Number of workers that a shard must have ended before it is convicted.
  static constexpr int kConvicted = 3;

  // A worker has ended while it computed these shards. `computed_alone`: those that it was
  // ordered to compute alone. Returns the shard that is convicted by this, if any.
  std::optional<int64_t> note(int64_t iteration, const std::vector<int64_t>& shards,
                              const std::vector<ShardOfIteration>& computed_alone) {
    for (const int64_t shard : shards) ++deaths_[{iteration, shard}];
    if (shards.size() != 1) return std::nullopt;
    const ShardOfIteration only{iteration, shards.front()};
    for (const ShardOfIteration& alone : computed_alone) {
      if (alone == only && deaths_[only] >= kConvicted) return only.second;
    }
    return std::nullopt;
  }

  // The shards that must be computed alone.
  std::vector<ShardOfIteration> suspects() const {
    std::vector<ShardOfIteration> all;
    for (const auto& [shard, deaths] : deaths_) {
      if (deaths >= kConvicted - 1) all.push_back(shard);
    }
    return all;
  }

  // Forgets iterations up to this one, which are finished.
  void finished(int64_t iteration) {
    deaths_.erase(deaths_.begin(), deaths_.lower_bound({iteration + 1, 0}));
  }

 private:
  std::map<ShardOfIteration, int> deaths_;
};

}  // namespace lockstep
