#include "lockstep/data/statistics.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/thread_pool.h"
#include "lockstep/data/image_cache.h"

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
    throw InvalidArgument("[statistics] cannot merge " + std::to_string(other.channels()) +
                          " channels into " + std::to_string(channels()));
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

ChannelStatistics channel_statistics(const ImageCache& cache, ThreadPool& pool) {
  struct alignas(64) Part {
    ChannelStatistics statistics;
    std::vector<uint8_t> scratch;
  };
  std::vector<Part> parts(static_cast<size_t>(pool.size()));
  for (Part& part : parts) part.statistics = ChannelStatistics(cache.channels());
  pool.for_each(cache.size(), [&](int64_t i, int thread) {
    Part& part = parts[static_cast<size_t>(thread)];
    part.statistics.add(cache.get(i, part.scratch), cache.height() * cache.width());
  });
  ChannelStatistics total(cache.channels());
  for (const Part& part : parts) total.merge(part.statistics);
  return total;
}

}  // namespace lockstep
