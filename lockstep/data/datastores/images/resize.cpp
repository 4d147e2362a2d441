#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

// The weights of source pixels in one pixel of the result. Their sum is 2^16.
struct Taps {
  int64_t first = 0;
  std::vector<int64_t> weights;
};

constexpr int64_t kOne = int64_t{1} << 16;

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
    int64_t given = 0;
    for (double share : shares) {
      sum += share;
      const auto upto = static_cast<int64_t>(std::floor(sum / total * kOne + 0.5));
      taps.weights.push_back(upto - given);
      given = upto;
    }
  }
  return all;
}

// Resizes one direction: `lines` lines of `from` elements become lines of `to` elements of `side`
// bytes each.
void resample(const uint8_t* source, uint8_t* target, int64_t lines, int64_t from, int64_t to,
              int64_t side) {
  const std::vector<Taps> all = taps_for(from, to);
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < to; ++i) {
      const Taps& taps = all[static_cast<size_t>(i)];
      for (int64_t s = 0; s < side; ++s) {
        int64_t sum = kOne / 2;
        for (size_t k = 0; k < taps.weights.size(); ++k) {
          const int64_t at = (line * from + taps.first + static_cast<int64_t>(k)) * side + s;
          sum += taps.weights[k] * source[at];
        }
        target[(line * to + i) * side + s] = static_cast<uint8_t>(sum / kOne);
      }
    }
  }
}

class Resized final : public DatastoreWrapper {
 public:
  Resized(DatastorePtr store, int64_t height, int64_t width)
      : DatastoreWrapper(std::move(store)), height_(height), width_(width) {
    check_single_images(wrapped(), "resize");
  }

  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    Image& image = image_in(example, index);
    image = resize(std::move(image), height_, width_);
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
    check_single_images(wrapped(), "resize");
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
  const auto bytes = [&](int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows * columns * image.channels);
  };
  std::vector<uint8_t> wide(bytes(image.height, width));
  resample(image.pixels.data(), wide.data(), image.height, image.width, width, image.channels);
  Image result{height, width, image.channels, std::vector<uint8_t>(bytes(height, width))};
  resample(wide.data(), result.pixels.data(), 1, image.height, height, width * image.channels);
  return result;
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
