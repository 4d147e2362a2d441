#include "lockstep/parallel/comm/deal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

// The most leaves that each may have so that the slowest is as fast as can be.
std::vector<int64_t> most_for_each(int64_t leaves, std::span<const double> loads) {
  const auto room = [&](double time, std::vector<int64_t>* most) {
    int64_t sum = 0;
    for (size_t w = 0; w < loads.size(); ++w) {
      // A load that divides evenly shall not lose a leaf to rounding.
      const auto count =
          static_cast<int64_t>(std::min(std::floor(time * loads[w] * (1 + 1e-12)), 1e15));
      if (most) (*most)[w] = std::min(count, leaves);
      sum += std::min(count, leaves);
    }
    return sum;
  };
  // The time is count / load of some worker: the smallest that is enough.
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

// How many partial sums a run leaves.
int64_t partial_sums(const LeafRun& node, const LeafRun& run) {
  const int64_t end = node.first + node.count, run_end = run.first + run.count;
  if (node.first >= run_end || end <= run.first) return 0;
  if (node.first >= run.first && end <= run_end) return 1;
  const int64_t left = tree_split(node.count);
  return partial_sums({node.first, left}, run) +
         partial_sums({node.first + left, node.count - left}, run);
}

}  // namespace

std::vector<LeafRun> deal_leaves(int64_t leaves, std::span<const double> loads) {
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
  std::vector<LeafRun> runs(loads.size());
  if (leaves == 0) return runs;

  const auto loaded = std::count_if(loads.begin(), loads.end(), [](double l) { return l > 0; });
  std::vector<int64_t> most = most_for_each(leaves, loads);
  if (loaded >= leaves) {
    // One for each of the first.
    int64_t at = 0;
    for (size_t w = 0; w < loads.size(); ++w) {
      if (loads[w] > 0 && at < leaves) runs[w] = {at++, 1};
    }
    return runs;
  }
  for (size_t w = 0; w < loads.size(); ++w) {
    if (loads[w] > 0) most[w] = std::max<int64_t>(most[w], 1);
  }
  // fewest(w, i): partial sums when workers from w on have the leaves from i on.
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

}  // namespace lockstep
