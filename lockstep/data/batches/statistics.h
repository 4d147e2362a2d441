// Statistics of the channels of training data: exact for 8-bit images, in double precision for
// arrays of floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

class ExampleCache;
class ThreadPool;

// The statistics of one channel that input normalization uses.
struct ChannelSummary {
  double mean = 0, standard_deviation = 0, min = 0, max = 0;
};

// Sums over all pixels of all images, per channel, in integers, so the order of summation does not
// matter. The sum of squares would exceed 64 bits beyond 2.8e14 pixels; add() and merge() check
// this.
struct ChannelStatistics {
  std::vector<uint64_t> sum, sum_of_squares;  // per channel
  std::vector<uint8_t> min, max;              // per channel; 255 and 0 without pixels
  uint64_t count = 0;                         // pixels per channel

  ChannelStatistics() = default;
  explicit ChannelStatistics(int64_t channels);

  int64_t channels() const { return static_cast<int64_t>(sum.size()); }
  // Adds one image of channels() x `pixels` bytes, channel by channel. Throws InternalError on
  // overflow.
  void add(const uint8_t* data, int64_t pixels);
  // Adds the sums of another part. Throws InvalidArgument if the numbers of channels differ.
  void merge(const ChannelStatistics& other);

  // Mean of channel c in units of 0 to 255; 0 without pixels.
  double mean(int64_t c) const;
  // Standard deviation (divided by count, not count - 1), from n S2 - S^2 in 128-bit integers.
  double standard_deviation(int64_t c) const;
  std::vector<ChannelSummary> summaries() const;

  friend bool operator==(const ChannelStatistics&, const ChannelStatistics&) = default;
};

// Means and sums of squared deviations of floats, in double precision. Rounding makes the results
// depend on the order of add() and merge(), which the caller must fix. Not thread-safe.
struct ArrayStatistics {
  std::vector<double> mean, squares;  // per channel; `squares` of deviations from the mean
  std::vector<float> min, max;        // infinity and -infinity without elements
  double count = 0;                   // elements per channel

  ArrayStatistics() = default;
  explicit ArrayStatistics(int64_t channels);

  int64_t channels() const { return static_cast<int64_t>(mean.size()); }
  // Adds one array of channels() x `positions` elements, or a sequence of such arrays.
  void add(const float* data, int64_t positions, int64_t steps = 1);
  // Adds the statistics of another part with the same number of channels.
  void merge(const ArrayStatistics& other);
  // Standard deviations are divided by the count. That of equal elements is 0.
  std::vector<ChannelSummary> summaries() const;

 private:
  // `share`: number of added elements divided by the new total.
  void add_channel(size_t c, double share, double their_mean, double their_squares);
};

// Returns the statistics of the images that are the first inputs of the cache, without
// augmentation. Decodes uncached images and caches them within the budget. Does not depend on the
// number of threads. Throws DataError.
ChannelStatistics channel_statistics(const ExampleCache& cache, ThreadPool& pool);

}  // namespace lockstep
