// Shards whose computation may end those who compute them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

// A shard of an iteration.
using ShardOfIteration = std::pair<int64_t, int64_t>;

// Counts workers that have ended by their own fault, by the shards under way in them. With several
// threads most of these are innocent: who was there twice is computed alone from then on, and only
// who ends a worker then is convicted. One thread at a time.
class ShardDeaths {
 public:
  // So many workers a shard has to end until it is convicted.
  static constexpr int kConvicted = 3;

  // A worker has ended while these shards were under way in it; `told`: which of them it computed
  // alone. The shard that is convicted by that.
  std::optional<int64_t> note(int64_t iteration, const std::vector<int64_t>& shards,
                              const std::vector<ShardOfIteration>& told) {
    for (const int64_t shard : shards) ++deaths_[{iteration, shard}];
    if (shards.size() != 1) return std::nullopt;
    const ShardOfIteration only{iteration, shards.front()};
    for (const ShardOfIteration& alone : told) {
      if (alone == only && deaths_[only] >= kConvicted) return only.second;
    }
    return std::nullopt;
  }

  // Those that are to be computed alone.
  std::vector<ShardOfIteration> suspects() const {
    std::vector<ShardOfIteration> all;
    for (const auto& [shard, deaths] : deaths_) {
      if (deaths >= kConvicted - 1) all.push_back(shard);
    }
    return all;
  }

  // Iterations up to this one are finished.
  void finished(int64_t iteration) {
    deaths_.erase(deaths_.begin(), deaths_.lower_bound({iteration + 1, 0}));
  }

 private:
  std::map<ShardOfIteration, int> deaths_;
};

}  // namespace lockstep
