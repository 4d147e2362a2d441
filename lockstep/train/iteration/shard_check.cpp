#include "lockstep/train/iteration/shard_check.h"

#include <algorithm>
#include <map>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep {
namespace {

std::string differs_text(int64_t iteration, int64_t shard, const std::string& what) {
  return "[check] shard " + std::to_string(shard + 1) + " of iteration " +
         std::to_string(iteration) + ", computed several times, has different results: " + what;
}

// "the gradient of conv.weights and 3 more"
std::string where(const ShardDigests& a, const ShardDigests& b,
                  const std::vector<std::string>& parameters) {
  std::string first;
  size_t more = 0;
  // Backpropagation runs from the end of the network, so the last difference is the first error.
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] == b[i]) continue;
    if (i == parameters.size()) return "loss, statistics or states by row";
    if (!first.empty()) ++more;
    if (first.empty()) first = "the gradient of " + parameters[i];
  }
  return first + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

}  // namespace

int64_t ShardCheck::times(int rank) const {
  return std::count(checkers.begin(), checkers.end(), rank);
}

std::optional<ShardCheck> check_due(int64_t iteration, int64_t frequency,
                                    const std::vector<IndexRange>& partition) {
  if (frequency == 0 || iteration % frequency != 0) return std::nullopt;
  int64_t shards = 0;
  for (const IndexRange& run : partition) shards += run.count;
  ShardCheck check;
  check.shard = (iteration / frequency - 1) % shards;
  const auto size = static_cast<int>(partition.size());
  for (int r = 0; r < size; ++r) {
    const IndexRange& run = partition[static_cast<size_t>(r)];
    if (check.shard >= run.first && check.shard < run.first + run.count) check.owner = r;
  }
  for (int distance = 1; distance < size && check.checkers.size() < 2; ++distance) {
    check.checkers.push_back((check.owner + distance) % size);
  }
  if (size <= 2) check.checkers.push_back(check.owner);
  if (size == 2) check.checkers.push_back(1 - check.owner);
  return check;
}

void compare_results(int64_t iteration, const ShardCheck& check,
                     const std::vector<ShardDigests>& results,
                     const std::vector<std::string>& parameters) {
  std::vector<int> ranks{check.owner};
  ranks.insert(ranks.end(), check.checkers.begin(), check.checkers.end());
  size_t most = 0;
  const ShardDigests* majority = nullptr;
  for (const ShardDigests& r : results) {
    const auto same = static_cast<size_t>(std::count(results.begin(), results.end(), r));
    if (same > most) {
      most = same;
      majority = &r;
    }
  }
  if (most == results.size()) return;
  std::vector<int> faulty;
  std::string what;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == *majority) continue;
    if (what.empty()) what = where(results[i], *majority, parameters);
    if (std::find(faulty.begin(), faulty.end(), ranks[i]) == faulty.end()) {
      faulty.push_back(ranks[i]);
    }
  }
  if (2 * most <= results.size()) faulty.clear();
  throw ShardsDiffer(differs_text(iteration, check.shard, what),
                     "a hardware fault, or a custom layer with an undeclared state", iteration,
                     check.shard, faulty);
}

void compare_results(int64_t iteration, const ShardCheck& check,
                     const std::vector<std::string>& parameters,
                     const std::function<const Digest*(int rank)>& result_of) {
  const size_t each = parameters.size() + 1;
  std::map<int, size_t> times;  // by rank
  const auto of = [&](int rank, size_t again) {
    const Digest* const from = result_of(rank) + again * each;
    return ShardDigests(from, from + each);
  };
  std::vector<ShardDigests> results{of(check.owner, 0)};
  for (const int rank : check.checkers) results.push_back(of(rank, ++times[rank]));
  compare_results(iteration, check, results, parameters);
}

}  // namespace lockstep
