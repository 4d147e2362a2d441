#include "lockstep/data/batches/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"

namespace lockstep {
namespace {

__extension__ using Wide = unsigned __int128;

void add_checked(uint64_t& sum, uint64_t value) {
  if (__builtin_add_overflow(sum, value, &sum)) {
    throw InternalError("[statistics] a sum over pixels exceeds 64 bits");
  }
}

}  // namespace

ChannelStatistics::ChannelStatistics(int64_t channels) {
  const auto n = static_cast<size_t>(channels);
  sum.assign(n, 0);
  sum_of_squares.assign(n, 0);
  min.assign(n, 255);
  max.assign(n, 0);
}

void ChannelStatistics::add(const uint8_t* data, int64_t pixels) {
  const auto space = static_cast<size_t>(pixels);
  for (size_t c = 0; c < sum.size(); ++c) {
    const uint8_t* const plane = data + c * space;
    uint64_t s = 0, squares = 0;  // below 2^45 for the largest image
    uint8_t low = 255, high = 0;
    for (size_t i = 0; i < space; ++i) {
      const uint32_t value = plane[i];
      s += value;
      squares += value * value;
      low = std::min(low, plane[i]);
      high = std::max(high, plane[i]);
    }
    add_checked(sum[c], s);
    add_checked(sum_of_squares[c], squares);
    min[c] = std::min(min[c], low);
    max[c] = std::max(max[c], high);
  }
  add_checked(count, static_cast<uint64_t>(pixels));
}

void ChannelStatistics::merge(const ChannelStatistics& other) {
  if (other.channels() != channels()) {
    throw InvalidArgument("[statistics] cannot merge " + counted(other.channels(), "channel") +
                          " into " + std::to_string(channels()));
  }
  for (size_t c = 0; c < sum.size(); ++c) {
    add_checked(sum[c], other.sum[c]);
    add_checked(sum_of_squares[c], other.sum_of_squares[c]);
    min[c] = std::min(min[c], other.min[c]);
    max[c] = std::max(max[c], other.max[c]);
  }
  add_checked(count, other.count);
}

double ChannelStatistics::mean(int64_t c) const {
  if (count == 0) return 0;
  return static_cast<double>(sum.at(static_cast<size_t>(c))) / static_cast<double>(count);
}

double ChannelStatistics::standard_deviation(int64_t c) const {
  if (count == 0) return 0;
  const auto i = static_cast<size_t>(c);
  const Wide squares = Wide{count} * sum_of_squares.at(i);
  const Wide square = Wide{sum.at(i)} * sum.at(i);
  // squares >= square (Cauchy and Schwarz), so the difference is exact and not negative.
  return std::sqrt(static_cast<double>(squares - square)) / static_cast<double>(count);
}

std::vector<ChannelSummary> ChannelStatistics::summaries() const {
  std::vector<ChannelSummary> all;
  for (int64_t c = 0; c < channels(); ++c) {
    const auto i = static_cast<size_t>(c);
    all.push_back(
        {mean(c), standard_deviation(c), static_cast<double>(min[i]), static_cast<double>(max[i])});
  }
  return all;
}

ArrayStatistics::ArrayStatistics(int64_t channels) {
  const auto n = static_cast<size_t>(channels);
  mean.assign(n, 0);
  squares.assign(n, 0);
  min.assign(n, std::numeric_limits<float>::infinity());
  max.assign(n, -std::numeric_limits<float>::infinity());
}

// The update of Chan, Golub and LeVeque, which has no difference of large sums. `count` is the
// count before the update.
void ArrayStatistics::add_channel(size_t c, double share, double their_mean, double their_squares) {
  const double distance = their_mean - mean[c];
  mean[c] += distance * share;
  squares[c] += their_squares + distance * distance * count * share;
}

void ArrayStatistics::add(const float* data, int64_t positions, int64_t steps) {
  const auto more = static_cast<double>(positions * steps);
  const double share = more / (count + more);
  const int64_t distance = channels() * positions;  // of steps
  for (size_t c = 0; c < mean.size(); ++c, data += positions) {
    double sum = 0, deviations = 0;
    for (const float* step = data; step < data + steps * distance; step += distance) {
      for (int64_t i = 0; i < positions; ++i) {
        sum += static_cast<double>(step[i]);
        min[c] = std::min(min[c], step[i]);
        max[c] = std::max(max[c], step[i]);
      }
    }
    const double own = sum / more;
    for (const float* step = data; step < data + steps * distance; step += distance) {
      for (int64_t i = 0; i < positions; ++i) {
        const double deviation = static_cast<double>(step[i]) - own;
        deviations += deviation * deviation;
      }
    }
    add_channel(c, share, own, deviations);
  }
  count += more;
}

void ArrayStatistics::merge(const ArrayStatistics& other) {
  if (other.count == 0) return;
  const double share = other.count / (count + other.count);
  for (size_t c = 0; c < mean.size(); ++c) {
    add_channel(c, share, other.mean.at(c), other.squares[c]);
    min[c] = std::min(min[c], other.min[c]);
    max[c] = std::max(max[c], other.max[c]);
  }
  count += other.count;
}

std::vector<ChannelSummary> ArrayStatistics::summaries() const {
  std::vector<ChannelSummary> all(mean.size());
  for (size_t c = 0; count > 0 && c < all.size(); ++c) {
    // Because of the mean's rounding, equal elements would have a deviation above 0.
    const bool equal = min[c] == max[c];
    all[c] = {equal ? static_cast<double>(min[c]) : mean[c],
              equal ? 0 : std::sqrt(squares[c] / count), static_cast<double>(min[c]),
              static_cast<double>(max[c])};
  }
  return all;
}

ChannelStatistics channel_statistics(const ExampleCache& cache, ThreadPool& pool) {
  struct alignas(64) Part {
    ChannelStatistics statistics;
    std::vector<uint8_t> scratch;
  };
  std::vector<Part> parts(static_cast<size_t>(pool.size()));
  const CachedValue& input = cache.inputs().at(0);
  for (Part& part : parts) part.statistics = ChannelStatistics(input.channels());
  pool.for_each(cache.size(), [&](int64_t i, int thread) {
    Part& part = parts[static_cast<size_t>(thread)];
    part.statistics.add(cache.get(i, part.scratch) + input.offset, input.height() * input.width());
  });
  ChannelStatistics total(input.channels());
  for (const Part& part : parts) total.merge(part.statistics);
  return total;
}

}  // namespace lockstep
