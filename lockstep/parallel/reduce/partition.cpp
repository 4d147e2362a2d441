#include "lockstep/parallel/reduce/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"

namespace lockstep {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

// The maximum number of leaves for each worker at which the slowest worker's time is minimal.
std::vector<int64_t> most_for_each(int64_t leaves, std::span<const double> loads) {
  const auto room = [&](double time, std::vector<int64_t>* most) {
    int64_t sum = 0;
    for (size_t w = 0; w < loads.size(); ++w) {
      // Compensates rounding, so that a load that divides evenly does not lose a leaf.
      const auto count =
          static_cast<int64_t>(std::min(std::floor(time * loads[w] * (1 + 1e-12)), 1e15));
      if (most) (*most)[w] = std::min(count, leaves);
      sum += std::min(count, leaves);
    }
    return sum;
  };
  // The time is count / load of some worker: find the smallest sufficient one.
  std::vector<double> times;
  for (const double load : loads) {
    for (int64_t n = 1; load > 0 && n <= leaves; ++n)
      times.push_back(static_cast<double>(n) / load);
  }
  std::sort(times.begin(), times.end());
  const auto enough = std::partition_point(
      times.begin(), times.end(), [&](double time) { return room(time, nullptr) < leaves; });
  std::vector<int64_t> most(loads.size());
  room(*enough, &most);
  return most;
}

// The number of partial sums of a range.
int64_t partial_sums(const IndexRange& node, const IndexRange& range) {
  const int64_t end = node.first + node.count, range_end = range.first + range.count;
  if (node.first >= range_end || end <= range.first) return 0;
  if (node.first >= range.first && end <= range_end) return 1;
  const int64_t left = tree_split(node.count);
  return partial_sums({node.first, left}, range) +
         partial_sums({node.first + left, node.count - left}, range);
}

}  // namespace

std::vector<IndexRange> partition_shards(int64_t leaves, std::span<const double> loads) {
  double sum = 0;
  for (const double load : loads) {
    if (!(load >= 0) || !std::isfinite(load)) {
      throw InvalidArgument("[workers] a load must be a number >= 0, received " +
                            std::to_string(load));
    }
    sum += load;
  }
  if (!(sum > 0)) throw InvalidArgument("[workers] no worker has a load");
  const auto workers = static_cast<int64_t>(loads.size());
  std::vector<IndexRange> runs(loads.size());
  if (leaves == 0) return runs;

  const auto loaded = std::count_if(loads.begin(), loads.end(), [](double l) { return l > 0; });
  std::vector<int64_t> most = most_for_each(leaves, loads);
  if (loaded >= leaves) {
    // One for each of the first workers with a load.
    int64_t at = 0;
    for (size_t w = 0; w < loads.size(); ++w) {
      if (loads[w] > 0 && at < leaves) runs[w] = {at++, 1};
    }
    return runs;
  }
  for (size_t w = 0; w < loads.size(); ++w) {
    if (loads[w] > 0) most[w] = std::max<int64_t>(most[w], 1);
  }
  // fewest(w, i): the fewest partial sums if workers from w on have the leaves from i on.
  const auto width = static_cast<size_t>(leaves + 1);
  std::vector<int64_t> fewest((loads.size() + 1) * width, kNever), choice(fewest.size(), 0);
  fewest[loads.size() * width + static_cast<size_t>(leaves)] = 0;
  for (int64_t w = workers - 1; w >= 0; --w) {
    const auto row = static_cast<size_t>(w);
    for (int64_t i = 0; i <= leaves; ++i) {
      const bool has_load = loads[row] > 0;
      const int64_t least = has_load ? 1 : 0, limit = has_load ? most[row] : 0;
      auto& best = fewest[row * width + static_cast<size_t>(i)];
      for (int64_t n = std::min(limit, leaves - i); n >= least; --n) {
        const int64_t rest = fewest[(row + 1) * width + static_cast<size_t>(i + n)];
        if (rest >= kNever) continue;
        const int64_t own = partial_sums({0, leaves}, {i, n});
        if (own + rest < best) {
          best = own + rest;
          choice[row * width + static_cast<size_t>(i)] = n;
        }
      }
    }
  }
  int64_t at = 0;
  for (size_t w = 0; w < loads.size(); ++w) {
    const int64_t n = choice[w * width + static_cast<size_t>(at)];
    runs[w] = {at, n};
    at += n;
  }
  return runs;
}

// Each piece goes to the worker that would be the first to finish it.
std::vector<int> divide_pieces(std::span<const int64_t> sizes, std::span<const int64_t> shares) {
  std::vector<double> given(shares.size(), 0);
  std::vector<int> workers;
  for (const int64_t size : sizes) {
    size_t first = shares.size();
    double earliest = 0;
    for (size_t w = 0; w < shares.size(); ++w) {
      if (shares[w] <= 0) continue;
      const double end = (given[w] + static_cast<double>(size)) / static_cast<double>(shares[w]);
      if (first < shares.size() && end >= earliest) continue;
      first = w;
      earliest = end;
    }
    if (first == shares.size()) throw InvalidArgument("[workers] no worker has a share");
    given[first] += static_cast<double>(size);
    workers.push_back(static_cast<int>(first));
  }
  return workers;
}

const std::vector<IndexRange>& Partitions::of(int64_t leaves) {
  const MutexLock lock(mutex_);
  const auto found = partitions_.find(leaves);
  if (found != partitions_.end()) return found->second;
  return partitions_.emplace(leaves, partition_shards(leaves, loads_)).first->second;
}

}  // namespace lockstep
