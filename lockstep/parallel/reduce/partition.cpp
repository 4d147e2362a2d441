#include "lockstep/parallel/reduce/partition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
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
  // The time is count / load of some worker. Only times near the smallest sufficient one are
  // listed.
  constexpr double kNear = 1e-9;
  double low = 0, high = 0;
  for (const double load : loads) {
    if (load > 0) high = std::max(high, static_cast<double>(leaves) / load);
  }
  while (high - low > kNear * high) {
    const double middle = low + (high - low) / 2;
    (room(middle, nullptr) < leaves ? low : high) = middle;
  }
  std::vector<double> times;
  for (const double load : loads) {
    if (!(load > 0)) continue;
    const double first = std::max(1.0, std::floor(low * (1 - kNear) * load));
    const double last = std::min(static_cast<double>(leaves), std::ceil(high * (1 + kNear) * load));
    for (double n = first; n <= last; ++n) times.push_back(n / load);
  }
  std::sort(times.begin(), times.end());
  const auto enough = std::partition_point(
      times.begin(), times.end(), [&](double time) { return room(time, nullptr) < leaves; });
  std::vector<int64_t> most(loads.size());
  room(*enough, &most);
  return most;
}

// The number of blocks of leaves between two indices, of sizes that are powers of two and at
// multiples of their size.
int64_t aligned_blocks(int64_t first, int64_t end) {
  if (first == end) return 0;
  const auto i = static_cast<uint64_t>(first), j = static_cast<uint64_t>(end);
  const int top = static_cast<int>(std::bit_width(i ^ j)) - 1;
  const uint64_t middle = j >> top << top;
  return std::popcount(middle - i) + std::popcount(j - middle);
}

// How a worker's possible first leaves are bounded.
struct Bounds {
  int64_t low = 0, high = 0;
};

// The steps that a search for partitions may take. Beyond, it looks near a partition by proportion.
constexpr int64_t kMostSteps = int64_t{1} << 22;

// The possible first leaves of each worker and the end, with counts between `least` and `most`.
std::vector<Bounds> bounds_of(int64_t leaves, const std::vector<int64_t>& least,
                              const std::vector<int64_t>& most) {
  const size_t n = most.size();
  std::vector<Bounds> bounds(n + 1);
  std::vector<int64_t> proportion(n + 1, 0);
  const int64_t all_least = std::accumulate(least.begin(), least.end(), int64_t{0});
  const int64_t all_most = std::accumulate(most.begin(), most.end(), int64_t{0});
  const int64_t room = std::max<int64_t>(all_most - all_least, 1);
  int64_t before_least = 0, before_most = 0, steps = 0;
  for (size_t w = 0; w <= n; ++w) {
    bounds[w] = {std::max(before_least, leaves - (all_most - before_most)),
                 std::min(before_most, leaves - (all_least - before_least))};
    // Between two workers at least `least` and at most `most`, because leaves <= all_most.
    proportion[w] = before_least + static_cast<int64_t>(static_cast<__int128>(leaves - all_least) *
                                                        (before_most - before_least) / room);
    if (w == n) break;
    steps += (bounds[w].high - bounds[w].low + 1) * (most[w] - least[w] + 1);
    before_least += least[w];
    before_most += most[w];
  }
  if (steps <= kMostSteps) return bounds;
  const int64_t each = kMostSteps / static_cast<int64_t>(n);
  const int64_t widest = *std::max_element(most.begin(), most.end());
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(each)));
  const int64_t reach = std::max<int64_t>(widest < root ? each / widest / 2 : root / 2, 1);
  for (size_t w = 0; w <= n; ++w) {
    bounds[w].low = std::max(bounds[w].low, proportion[w] - reach);
    bounds[w].high = std::min(bounds[w].high, proportion[w] + reach);
  }
  return bounds;
}

}  // namespace

int64_t partial_sums(int64_t leaves, const IndexRange& range) {
  if (range.count == 0) return 0;
  const int64_t end = range.first + range.count;
  if (end < leaves) return aligned_blocks(range.first, end);
  // The nodes that end with the last leaf begin where the tree splits.
  int64_t last = 0;
  while (last < range.first) last += tree_split(leaves - last);
  return aligned_blocks(range.first, last) + 1;
}

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
  std::vector<IndexRange> ranges(loads.size());
  if (leaves == 0) return ranges;

  const auto loaded = std::count_if(loads.begin(), loads.end(), [](double l) { return l > 0; });
  std::vector<int64_t> most = most_for_each(leaves, loads);
  if (loaded >= leaves) {
    // One for each of the first workers with a load.
    int64_t at = 0;
    for (size_t w = 0; w < loads.size(); ++w) {
      if (loads[w] > 0 && at < leaves) ranges[w] = {at++, 1};
    }
    return ranges;
  }
  for (size_t w = 0; w < loads.size(); ++w) {
    if (loads[w] > 0) most[w] = std::max<int64_t>(most[w], 1);
  }
  std::vector<int64_t> least(loads.size(), 0);
  for (size_t w = 0; w < loads.size(); ++w) {
    least[w] = loads[w] > 0 ? 1 : 0;
    if (least[w] == 0) most[w] = 0;
  }
  const std::vector<Bounds> bounds = bounds_of(leaves, least, most);
  // fewest[i]: the fewest partial sums if workers from w on have the leaves from i on, for the
  // first leaves i within their bounds. choice[w][i]: the worker's leaves then.
  std::vector<int64_t> fewest{0};
  std::vector<std::vector<int64_t>> choice(loads.size());
  for (size_t w = loads.size(); w-- > 0;) {
    const Bounds here = bounds[w], next = bounds[w + 1];
    std::vector<int64_t> rest = std::move(fewest);
    fewest.assign(static_cast<size_t>(here.high - here.low + 1), kNever);
    choice[w].assign(fewest.size(), 0);
    for (int64_t i = here.low; i <= here.high; ++i) {
      const auto at = static_cast<size_t>(i - here.low);
      const int64_t highest = std::min(most[w], next.high - i);
      for (int64_t n = highest; n >= std::max(least[w], next.low - i); --n) {
        const int64_t others = rest[static_cast<size_t>(i + n - next.low)];
        if (others >= kNever) continue;
        const int64_t own = partial_sums(leaves, {i, n});
        if (own + others < fewest[at]) {
          fewest[at] = own + others;
          choice[w][at] = n;
        }
      }
    }
  }
  int64_t at = 0;
  for (size_t w = 0; w < loads.size(); ++w) {
    const int64_t n = choice[w][static_cast<size_t>(at - bounds[w].low)];
    ranges[w] = {at, n};
    at += n;
  }
  return ranges;
}

// Each update range goes to the worker that would be the first to finish it.
std::vector<int> divide_update_ranges(std::span<const int64_t> sizes,
                                      std::span<const int64_t> shares) {
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

std::shared_ptr<const SumSchedule> SumSchedules::of(int64_t leaves) {
  const MutexLock lock(mutex_);
  std::shared_ptr<const SumSchedule>& schedule = schedules_[leaves];
  if (!schedule) schedule = std::make_shared<SumSchedule>(partition_shards(leaves, loads_));
  return schedule;
}

}  // namespace lockstep
