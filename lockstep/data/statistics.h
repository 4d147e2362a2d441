// Statistics of the channels of what networks are trained on: of 8-bit images exact, of arrays of
// floats in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

class ImageCache;
class ThreadPool;

// What the normalisation of inputs takes of one channel.
struct ChannelSummary {
  double mean = 0, standard_deviation = 0, min = 0, max = 0;
};

// Sums over all pixels of all images, per channel, in integers: no order of summing can change
// them. The sum of squares would exceed 64 bits beyond 2.8e14 pixels; that is checked.
struct ChannelStatistics {
  std::vector<uint64_t> sum, sum_of_squares;  // per channel
  std::vector<uint8_t> min, max;              // per channel; 255 and 0 where there is no pixel
  uint64_t count = 0;                         // pixels per channel

  ChannelStatistics() = default;
  explicit ChannelStatistics(int64_t channels);

  int64_t channels() const { return static_cast<int64_t>(sum.size()); }
  // Adds one image of channels() x `pixels` bytes, channel by channel. Throws InternalError on
  // overflow.
  void add(const uint8_t* data, int64_t pixels);
  // Adds another's sums. Throws InvalidArgument when the numbers of channels differ.
  void merge(const ChannelStatistics& other);

  // Mean of channel c in units of 0 to 255; 0 where there is no pixel.
  double mean(int64_t c) const;
  // Standard deviation (divided by count, not count - 1), from n S2 - S^2 in 128-bit integers.
  double standard_deviation(int64_t c) const;
  std::vector<ChannelSummary> summaries() const;

  friend bool operator==(const ChannelStatistics&, const ChannelStatistics&) = default;
};

// Means and sums of squared deviations of floats, in double. They round, so that what comes out
// depends on the order of add() and merge(), which callers fix. For one thread at a time.
struct ArrayStatistics {
  std::vector<double> mean, squares;  // per channel; squares: of deviations from the mean
  std::vector<float> min, max;        // infinite, and minus that, where there is no element
  double count = 0;                   // elements per channel

  ArrayStatistics() = default;
  explicit ArrayStatistics(int64_t channels);

  int64_t channels() const { return static_cast<int64_t>(mean.size()); }
  // Adds one array of channels() x `places` elements.
  void add(const float* data, int64_t places);
  // Adds another's, of as many channels.
  void merge(const ArrayStatistics& other);
  // Standard deviations divide by the count; that of equal elements is 0.
  std::vector<ChannelSummary> summaries() const;

 private:
  // `share`: of the added elements among all there will be.
  void add_channel(size_t c, double share, double their_mean, double their_squares);
};

// The statistics of all images of the cache, without augmentation. Decodes what is not cached (and
// caches it, within the budget). The same answer whatever the number of threads. Throws DataError.
ChannelStatistics channel_statistics(const ImageCache& cache, ThreadPool& pool);

}  // namespace lockstep
