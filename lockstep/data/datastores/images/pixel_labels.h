// Label images: what their pixels stand for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "lockstep/base/digest.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

// Reads label images: one channel with the numbers of the classes, and ignored_pixel. Immutable,
// thread-safe.
class PixelCoding {
 public:
  // Throws InvalidArgument as PixelClasses::check().
  explicit PixelCoding(PixelClasses classes);

  const PixelClasses& classes() const { return classes_; }
  // Of all that decode() depends on.
  const Digest& digest() const { return digest_; }
  // Of the contents of a label image with the digest `stored` of what it is read from.
  Digest content_of(const Digest& stored) const;
  // A PNG file. `name` appears in messages. Throws DataError for another kind of file, a damaged
  // one, one with other values than the classes have, and a pixel whose value no class has.
  Image decode(std::span<const std::byte> bytes, const std::string& name) const;
  // An image in memory: gray values, or colors.
  Image decode(const Image& image, const std::string& name) const;

 private:
  static constexpr int16_t kNone = -1;
  // The class of a number or color, kNone if it has none.
  int16_t class_of(uint32_t value) const;
  // `palette`: the colors of the indices, if the image has indices.
  Image decoded(const Image& image, const Palette& palette, const std::string& name) const;
  [[noreturn]] void refuse_value(const Image& image, size_t pixel, uint32_t value,
                                 const std::string& name) const;

  const PixelClasses classes_;
  Digest digest_;
  std::map<uint32_t, uint8_t> colors_;  // by red << 16 | green << 8 | blue
  std::array<int16_t, 256> numbers_ = {};
};

// The image with nearest pixels: pixel i is that at (i + 1/2) * from / to, rounded down. Throws
// InvalidArgument as resize(). Thread-safe.
Image resize_labels(const Image& labels, int64_t height, int64_t width);

// The labels of an image that is decoded at this scale, from those of the whole image: each pixel
// is the middle one of those that it shows, or the nearest to it. Thread-safe.
Image reduce_labels(const Image& labels, const DecodedScale& scale);

// A color for each class to show it in: its own, else that of PASCAL VOC; then white, for pixels
// without a class.
Palette shown_colors(const PixelClasses& classes);

}  // namespace lockstep
