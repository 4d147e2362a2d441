#include "lockstep/data/datastores/images/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/pixel_labels.h"

namespace lockstep {
namespace {

// The weights of source pixels in one pixel of the result. Their sum is 2^16.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

constexpr int32_t kOne = 1 << 16;

std::vector<Taps> taps_for(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);  // half the triangle's width
  std::vector<Taps> all(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    Taps& taps = all[static_cast<size_t>(i)];
    const double center = (static_cast<double>(i) + 0.5) * scale - 0.5;
    taps.first = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(center - reach)));
    const int64_t last =
        std::min<int64_t>(from - 1, static_cast<int64_t>(std::floor(center + reach)));
    std::vector<double> shares;
    double total = 0;
    for (int64_t k = taps.first; k <= last; ++k) {
      shares.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(k) - center) / reach));
      total += shares.back();
    }
    // Rounds the running sum, so that the weights add up exactly.
    double sum = 0;
    int32_t given = 0;
    for (double share : shares) {
      sum += share;
      const auto upto = static_cast<int32_t>(std::floor(sum / total * kOne + 0.5));
      taps.weights.push_back(upto - given);
      given = upto;
    }
  }
  return all;
}

// Sums of neighbors along lines, `side` elements of a pixel at a time. Pixels lie `apart` bytes
// apart.
template <int side>
void resample_pixels(const std::vector<Taps>& all, const uint8_t* source, int64_t lines,
                     int64_t line_bytes, int64_t apart, uint8_t* target) {
  for (int64_t line = 0; line < lines; ++line) {
    const uint8_t* const first = source + line * line_bytes;
    for (const Taps& taps : all) {
      std::array<int32_t, side> sums;
      sums.fill(kOne / 2);
      const uint8_t* pixel = first + taps.first * apart;
      for (const int32_t weight : taps.weights) {
        for (size_t s = 0; s < side; ++s) sums[s] += weight * pixel[s];
        pixel += apart;
      }
      for (size_t s = 0; s < side; ++s) target[s] = static_cast<uint8_t>(sums[s] >> 16);
      target += apart;
    }
  }
}

// Whole lines of `count` elements: the sum of neighboring lines.
void resample_lines(const std::vector<Taps>& all, const uint8_t* source, int64_t count,
                    uint8_t* target) {
  std::vector<int32_t> sums(static_cast<size_t>(count));
  for (const Taps& taps : all) {
    std::fill(sums.begin(), sums.end(), kOne / 2);
    const uint8_t* line = source + taps.first * count;
    for (const int32_t weight : taps.weights) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * line[i];
      line += count;
    }
    for (const int32_t sum : sums) *target++ = static_cast<uint8_t>(sum >> 16);
  }
}

class Resized final : public DatastoreWrapper {
 public:
  Resized(DatastorePtr store, int64_t height, int64_t width)
      : DatastoreWrapper(std::move(store)), height_(height), width_(width) {
    check_single_images(wrapped(), "resize", true);
  }

  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    Image& image = image_in(example, index);
    image = resize(std::move(image), height_, width_);
    if (Image* const labels = labels_in(example)) {
      *labels = resize_labels(*labels, height_, width_);
    }
    return example;
  }
  std::optional<Digest> file_state() const override {
    return changed_state("resized", {height_, width_});
  }

 private:
  int64_t height_, width_;
};

class ShorterResized final : public DatastoreWrapper {
 public:
  ShorterResized(DatastorePtr store, int64_t side)
      : DatastoreWrapper(std::move(store)), side_(side) {
    check_single_images(wrapped(), "resize", true);
  }

  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    Image& image = image_in(example, index);
    const auto [height, width] = size_of_shorter(image.height, image.width, side_);
    if (std::max(height, width) > max_image_side) {
      throw DataError("[resize] " + name(index) + " (" + describe() + ") has the size " +
                          std::to_string(image.height) + " x " + std::to_string(image.width) +
                          ", which would become " + std::to_string(height) + " x " +
                          std::to_string(width),
                      "sides must be at most " + std::to_string(max_image_side));
    }
    image = resize(std::move(image), height, width);
    if (Image* const labels = labels_in(example)) *labels = resize_labels(*labels, height, width);
    example.content = of_side(example.content);
    return example;
  }
  // The network's input does not tell this size.
  Digest content_digest(int64_t index) const override {
    return of_side(wrapped().content_digest(index));
  }
  std::optional<Digest> file_state() const override {
    return changed_state("shorter side", {side_});
  }

 private:
  Digest of_side(const Digest& original) const {
    Digester digester;
    digester.add(original);
    digester.add("shorter side");
    digester.add(static_cast<uint64_t>(side_));
    return digester.finish();
  }

  int64_t side_;
};

void check_size(int64_t height, int64_t width) {
  if (height >= 1 && width >= 1 && height <= max_image_side && width <= max_image_side) return;
  throw InvalidArgument("[resize] " + std::to_string(height) + " x " + std::to_string(width) +
                        " is not a valid image size: sides must be 1 to " +
                        std::to_string(max_image_side));
}

}  // namespace

Image resize(Image image, int64_t height, int64_t width) {
  check_size(height, width);
  if (image.height == height && image.width == width) return image;
  if (image.height < 1 || image.width < 1 || image.channels < 1) {
    throw InvalidArgument("[resize] there are no pixels to resize");
  }
  const int64_t side = image.channels, row = image.width * side;
  Image result{height, width, side,
               std::vector<uint8_t>(static_cast<size_t>(height * width * side))};
  std::vector<uint8_t> wide(static_cast<size_t>(image.height * width * side));
  const std::vector<Taps> columns = taps_for(image.width, width);
  const uint8_t* const from = image.pixels.data();
  if (side == 3) {
    resample_pixels<3>(columns, from, image.height, row, side, wide.data());
  } else {
    for (int64_t c = 0; c < side; ++c) {
      resample_pixels<1>(columns, from + c, image.height, row, side, wide.data() + c);
    }
  }
  resample_lines(taps_for(image.height, height), wide.data(), width * side, result.pixels.data());
  return result;
}

void detail::resize_region(const uint8_t* planes, const Size2d& whole, int64_t channels,
                           const Region& region, const Size2d& size, uint8_t* to) {
  const std::vector<Taps> columns = taps_for(region.width, size[1]);
  const std::vector<Taps> rows = taps_for(region.height, size[0]);
  std::vector<uint8_t> wide(static_cast<size_t>(region.height * size[1]));
  for (int64_t c = 0; c < channels; ++c, to += size[0] * size[1]) {
    const int64_t first = (c * whole[0] + region.top) * whole[1] + region.left;
    resample_pixels<1>(columns, planes + first, region.height, whole[1], 1, wide.data());
    resample_lines(rows, wide.data(), size[1], to);
  }
}

void detail::resize_region_of_labels(const uint8_t* labels, const Size2d& whole,
                                     const Region& region, const Size2d& size, uint8_t* to) {
  for (int64_t y = 0; y < size[0]; ++y) {
    const int64_t row = region.top + (2 * y + 1) * region.height / (2 * size[0]);
    for (int64_t x = 0; x < size[1]; ++x) {
      *to++ = labels[row * whole[1] + region.left + (2 * x + 1) * region.width / (2 * size[1])];
    }
  }
}

DatastorePtr resized(DatastorePtr store, int64_t height, int64_t width) {
  check_size(height, width);
  return std::make_shared<Resized>(std::move(store), height, width);
}

Size2d size_of_shorter(int64_t height, int64_t width, int64_t side) {
  check_size(side, side);
  const int64_t shorter = std::min(height, width), longer = std::max(height, width);
  if (shorter < 1) throw InvalidArgument("[resize] there are no pixels to resize");
  const int64_t other = side * longer / shorter;
  return height <= width ? Size2d{side, other} : Size2d{other, side};
}

DatastorePtr shorter_resized(DatastorePtr store, int64_t side) {
  check_size(side, side);
  return std::make_shared<ShorterResized>(std::move(store), side);
}

}  // namespace lockstep
