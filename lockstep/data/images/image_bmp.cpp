// Decodes BMP: 1 to 32 bits per pixel, palettes, masks, and run lengths. Memory is allocated only
// for pixels that the file contains or may contain as runs.
#include <algorithm>
#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image_codecs.h"

namespace lockstep::detail {
namespace {

// Kinds of compression.
enum : uint32_t { bmp_plain = 0, bmp_rle8 = 1, bmp_rle4 = 2, bmp_masks = 3, bmp_alpha_masks = 6 };

class BmpReader {
 public:
  BmpReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  Image read() {
    read_header();
    Image image{height_, width_, 3, {}};
    if (bits_ <= 8) read_palette();
    if (bits_ == 16 || bits_ == 32) read_masks();
    at_ = pixels_at();
    if (compression_ == bmp_rle8 || compression_ == bmp_rle4) {
      read_runs(image);
    } else {
      read_rows(image);
    }
    return image;
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw DataError("[image] " + name_ + ": damaged BMP near byte " + std::to_string(at_) + " of " +
                    std::to_string(bytes_.size()) + ": " + what);
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    throw DataError("[image] " + name_ + ": a BMP with " + what + ", which is not supported",
                    "convert it to PNG");
  }

  uint32_t number(size_t at, size_t size) {
    if (size > bytes_.size() || at > bytes_.size() - size) {
      at_ = bytes_.size();
      damaged("the file ends too early");
    }
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value |= std::to_integer<uint32_t>(bytes_[at + i]) << (8 * i);
    }
    return value;
  }
  uint8_t byte() { return static_cast<uint8_t>(number(at_++, 1)); }

  void read_header() {
    header_ = number(14, 4);
    if (header_ == 12) {  // of OS/2
      width_ = number(18, 2);
      height_ = number(20, 2);
      bits_ = number(24, 2);
    } else {
      const auto width = static_cast<int32_t>(number(18, 4));
      const auto height = static_cast<int32_t>(number(22, 4));
      if (width < 0) damaged("it has " + std::to_string(width) + " columns");
      width_ = width;
      down_ = height < 0;
      height_ = down_ ? -int64_t{height} : height;
      bits_ = number(28, 2);
      compression_ = header_ >= 20 ? number(30, 4) : bmp_plain;
      colors_ = header_ >= 36 ? number(46, 4) : 0;
    }
    check_image_size(static_cast<uint64_t>(height_), static_cast<uint64_t>(width_), name_);
    constexpr uint32_t known[] = {1, 2, 4, 8, 16, 24, 32};
    if (std::find(std::begin(known), std::end(known), bits_) == std::end(known)) {
      damaged(std::to_string(bits_) + " bits for a pixel");
    }
    // OS/2 2.x has other meanings of 3 and 4: they have 1 and 24 bits there.
    const bool fits = compression_ == bmp_plain || (compression_ == bmp_rle8 && bits_ == 8) ||
                      (compression_ == bmp_rle4 && bits_ == 4) ||
                      ((compression_ == bmp_masks || compression_ == bmp_alpha_masks) &&
                       (bits_ == 16 || bits_ == 32));
    if (!fits) {
      unsupported("compression " + std::to_string(compression_) + " of " + std::to_string(bits_) +
                  " bits for a pixel");
    }
    if (down_ && compression_ != bmp_plain && bits_ <= 8) unsupported("run lengths from the top");
  }

  // The size of the masks that follow a header which does not contain them.
  size_t masks_after_header() const {
    if (header_ != 40) return 0;
    return compression_ == bmp_masks ? 12 : compression_ == bmp_alpha_masks ? 16 : 0;
  }

  size_t pixels_at() {
    const size_t entry = header_ == 12 ? 3 : 4;
    const size_t after = size_t{14} + header_ + masks_after_header() + entry * palette_.size() / 3;
    const size_t at = number(10, 4);
    if (at == 0) return after;
    if (at < size_t{14} + header_ || at > bytes_.size()) {
      damaged("the pixels would begin at byte " + std::to_string(at));
    }
    return at;
  }

  void read_palette() {
    const uint32_t most = uint32_t{1} << bits_;
    uint32_t count = colors_ == 0 || colors_ > most ? most : colors_;
    const size_t entry = header_ == 12 ? 3 : 4, begin = size_t{14} + header_;
    // OS/2's files may hold fewer colors than there can be, and then pixels begin earlier.
    const size_t pixels = number(10, 4);
    if (pixels > begin)
      count = std::min<uint32_t>(count, static_cast<uint32_t>((pixels - begin) / entry));
    for (uint32_t i = 0; i < count; ++i) {
      for (const size_t c : {2, 1, 0}) {
        palette_.push_back(static_cast<uint8_t>(number(begin + entry * i + c, 1)));
      }
    }
  }

  struct Mask {
    uint32_t shift = 0, most = 0;  // most: the largest value; 0: the channel is absent
  };

  void read_masks() {
    const bool stored = compression_ == bmp_masks || compression_ == bmp_alpha_masks;
    for (size_t c = 0; c < 3; ++c) {
      uint32_t mask = bits_ == 16 ? 0x7c00U >> (5 * c) : 0xff0000U >> (8 * c);
      if (stored) mask = number(54 + 4 * c, 4);
      if (mask == 0) continue;
      masks_[c].shift = static_cast<uint32_t>(std::countr_zero(mask));
      masks_[c].most = mask >> masks_[c].shift;
      if ((masks_[c].most & (masks_[c].most + 1)) != 0) unsupported("a mask with gaps");
    }
  }

  void put(uint8_t* to, uint32_t index) const {
    if (3 * size_t{index} >= palette_.size()) {
      damaged("color " + std::to_string(index) + " of a palette of " +
              std::to_string(palette_.size() / 3));
    }
    std::copy_n(palette_.data() + 3 * size_t{index}, 3, to);
  }

  uint8_t* row(Image& image, int64_t y) const {
    return image.pixels.data() + 3 * width_ * (down_ ? y : height_ - 1 - y);
  }

  void read_rows(Image& image) {
    const size_t row_bytes = (static_cast<size_t>(width_) * bits_ + 31) / 32 * 4;
    // The padding of the last row may be missing.
    const size_t least = row_bytes * static_cast<size_t>(height_ - 1) +
                         (static_cast<size_t>(width_) * bits_ + 7) / 8;
    if (at_ > bytes_.size() || bytes_.size() - at_ < least) {
      damaged("its pixels need " + std::to_string(least) + " bytes, but there are " +
              std::to_string(at_ > bytes_.size() ? 0 : bytes_.size() - at_));
    }
    image.pixels.resize(static_cast<size_t>(3 * width_ * height_));
    for (int64_t y = 0; y < height_; ++y, at_ += row_bytes) {
      uint8_t* to = row(image, y);
      for (int64_t x = 0; x < width_; ++x, to += 3) read_pixel(static_cast<size_t>(x), to);
    }
  }

  void read_pixel(size_t x, uint8_t* to) {
    const auto* const from = reinterpret_cast<const uint8_t*>(bytes_.data()) + at_;
    if (bits_ <= 8) {
      const size_t bit = x * bits_;
      const uint32_t high = 8 - bits_ - static_cast<uint32_t>(bit % 8);
      put(to, uint32_t{from[bit / 8]} >> high & ((1U << bits_) - 1));
    } else if (bits_ == 24) {
      for (size_t c = 0; c < 3; ++c) to[c] = from[3 * x + 2 - c];
    } else {
      const size_t size = bits_ / 8;
      uint32_t value = 0;
      for (size_t i = 0; i < size; ++i) value |= uint32_t{from[size * x + i]} << (8 * i);
      for (size_t c = 0; c < 3; ++c) {
        const Mask& mask = masks_[c];
        const uint64_t share = value >> mask.shift & mask.most;
        to[c] =
            static_cast<uint8_t>(mask.most == 0 ? 0 : (share * 255 + mask.most / 2) / mask.most);
      }
    }
  }

  // Pixels that no run sets have the first color.
  void read_runs(Image& image) {
    // A run of two bytes sets at most 255 pixels, and escapes skip lines: files that say more than
    // they can are refused before their pixels are allocated.
    const auto pixels = static_cast<uint64_t>(width_ * height_);
    if (pixels / 255 > (uint64_t{1} << 16) + bytes_.size()) damaged("too few bytes for its pixels");
    image.pixels.resize(static_cast<size_t>(3 * pixels));
    for (uint64_t i = 0; i < pixels; ++i) put(image.pixels.data() + 3 * i, 0);
    int64_t x = 0, y = 0;
    const auto set = [&](uint32_t index) {
      if (y >= height_) damaged("a run after the last row");
      if (x < width_) put(row(image, y) + 3 * x, index);
      ++x;
    };
    const auto half = [&](uint8_t value, uint32_t i) {
      return compression_ == bmp_rle8 ? uint32_t{value}
                                      : uint32_t{value} >> (i % 2 == 0 ? 4 : 0) & 15;
    };
    while (true) {
      if (y >= height_ - 1 && x >= width_ && at_ >= bytes_.size()) return;  // without an end
      const uint32_t count = byte();
      const uint8_t value = byte();
      if (count > 0) {
        for (uint32_t i = 0; i < count; ++i) set(half(value, i));
      } else if (value == 0) {
        x = 0;
        ++y;
        if (y >= height_ && at_ >= bytes_.size()) return;
      } else if (value == 1) {
        return;
      } else if (value == 2) {
        x += byte();
        y += byte();
      } else {
        const size_t size = compression_ == bmp_rle8 ? value : (value + 1U) / 2;
        const size_t begin = at_;
        for (uint32_t i = 0; i < value; ++i) {
          set(half(static_cast<uint8_t>(number(begin + (compression_ == bmp_rle8 ? i : i / 2), 1)),
                   i));
        }
        at_ = begin + size + size % 2;
      }
    }
  }

  const std::span<const std::byte> bytes_;
  const std::string& name_;
  size_t at_ = 0;
  uint32_t header_ = 0, bits_ = 0, compression_ = bmp_plain, colors_ = 0;
  int64_t width_ = 0, height_ = 0;
  bool down_ = false;  // the first row is the top one
  std::vector<uint8_t> palette_;
  Mask masks_[3];
};

}  // namespace

Image decode_bmp(std::span<const std::byte> bytes, const std::string& name) {
  return BmpReader(bytes, name).read();
}

}  // namespace lockstep::detail
