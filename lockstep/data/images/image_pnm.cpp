// Decodes binary PNM: bitmaps (P4), gray maps (P5), pixel maps (P6). A header of decimal numbers
// precedes uncompressed rows. Memory is allocated only for pixels that the file contains.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image_codecs.h"

namespace lockstep::detail {
namespace {

class PnmReader {
 public:
  PnmReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  Image read() {
    const char kind = static_cast<char>(bytes_[1]);
    position_ = 2;
    if (kind < '4' || kind > '6') {
      throw DataError("[image] " + name_ + ": a PNM file of type P" + kind,
                      "only binary PNM files can be read: P4, P5 and P6");
    }
    const uint64_t width = number("columns"), height = number("rows");
    check_image_size(height, width, name_);
    const uint64_t max = kind == '4' ? 1 : number("the largest value");
    if (max < 1 || max > 65535) {
      damaged("the largest value is " + std::to_string(max) + ", but must be 1 to 65535");
    }
    if (!at_space()) damaged("no white space after the header");
    ++position_;

    Image image{static_cast<int64_t>(height), static_cast<int64_t>(width), kind == '6' ? 3 : 1, {}};
    const size_t samples = static_cast<size_t>(width) * static_cast<size_t>(image.channels);
    const size_t row_bytes = kind == '4' ? (samples + 7) / 8 : max > 255 ? 2 * samples : samples;
    const size_t wanted = row_bytes * static_cast<size_t>(height);
    const size_t there = bytes_.size() - position_;
    // White space after the pixels is harmless.
    const bool fits = there == wanted || (there > wanted && only_space(position_ + wanted));
    if (!fits) {
      damaged("the header requires " + std::to_string(wanted) + " bytes of pixels, but there are " +
              std::to_string(there));
    }
    image.pixels.resize(samples * static_cast<size_t>(height));
    for (size_t y = 0; y < height; ++y) {
      uint8_t* const row = image.pixels.data() + y * samples;
      if (kind == '4') {
        read_bits(row, samples);
      } else {
        read_values(row, samples, static_cast<uint32_t>(max));
      }
      position_ += row_bytes;
    }
    return image;
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw DataError("[image] " + name_ + ": damaged PNM near byte " + std::to_string(position_) +
                    " of " + std::to_string(bytes_.size()) + ": " + what);
  }

  uint32_t byte(size_t at) const { return std::to_integer<uint32_t>(bytes_[at]); }
  bool is_space(size_t at) const {
    const uint32_t c = byte(at);
    return c == ' ' || (c >= '\t' && c <= '\r');
  }
  bool at_space() const { return position_ < bytes_.size() && is_space(position_); }
  bool only_space(size_t from) const {
    while (from < bytes_.size() && is_space(from)) ++from;
    return from == bytes_.size();
  }

  // Reads the next number of the header, after white space and comments.
  uint64_t number(const char* what) {
    const size_t begin = position_;
    while (at_space() || (position_ < bytes_.size() && byte(position_) == '#')) {
      if (byte(position_) == '#') {
        while (position_ < bytes_.size() && byte(position_) != '\n') ++position_;
      } else {
        ++position_;
      }
    }
    const size_t first = position_;
    uint64_t value = 0;
    for (; position_ < bytes_.size(); ++position_) {
      const uint32_t digit = byte(position_) - '0';
      if (digit > 9) break;
      value = std::min<uint64_t>(10 * value + digit, uint64_t{1} << 40);  // above all limits
    }
    if (position_ == first || first == begin) damaged(std::string("no valid number of ") + what);
    return value;
  }

  // One bit per pixel, the highest bit first; 1 is black.
  void read_bits(uint8_t* row, size_t pixels) const {
    for (size_t x = 0; x < pixels; ++x) {
      row[x] = (byte(position_ + x / 8) >> (7 - x % 8) & 1) != 0 ? 0 : 255;
    }
  }

  void read_values(uint8_t* row, size_t samples, uint32_t max) {
    for (size_t i = 0; i < samples; ++i) {
      const uint32_t value = max > 255 ? byte(position_ + 2 * i) << 8 | byte(position_ + 2 * i + 1)
                                       : byte(position_ + i);
      if (value > max) {
        position_ += max > 255 ? 2 * i : i;
        damaged("a value of " + std::to_string(value) + ", but the largest is " +
                std::to_string(max));
      }
      row[i] = static_cast<uint8_t>((value * 255 + max / 2) / max);
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  size_t position_ = 0;
};

}  // namespace

Image decode_pnm(std::span<const std::byte> bytes, const std::string& name) {
  return PnmReader(bytes, name).read();
}

}  // namespace lockstep::detail
