#include <zlib.h>

#include "tests/data/encode.h"
#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

uint32_t number_at(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[at + i]);
  return value;
}

// Corrects the checksums of chunks, which random changes hardly ever match.
Bytes repaired(std::span<const std::byte> from) {
  Bytes bytes(from.begin(), from.end());
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = number_at(bytes, at);
    if (length > bytes.size() - at - 12) break;
    const auto* checked = reinterpret_cast<const unsigned char*>(bytes.data() + at + 4);
    const auto sum = crc32(0, checked, static_cast<unsigned>(length + 4));
    for (size_t i = 0; i < 4; ++i) {
      bytes[at + 8 + length + i] = static_cast<std::byte>(sum >> (24 - 8 * i) & 0xff);
    }
    at += length + 12;
  }
  return bytes;
}

// 11 x 9, with rows of `row_bytes`.
Bytes encode(int bits, int type, bool interlaced, size_t row_bytes) {
  testing::PngOptions options{.bits = bits, .type = type, .interlaced = interlaced};
  const bool palette = type == PNG_COLOR_TYPE_PALETTE;
  if (palette) options.palette = {{0, 0, 0}, {255, 0, 0}, {0, 255, 0}, {9, 8, 7}};
  std::vector<std::vector<uint8_t>> rows;
  for (int y = 0; y < 11; ++y) {
    rows.emplace_back(row_bytes, static_cast<uint8_t>(palette ? y % 4 : 7 * y));
  }
  return testing::raw_png(11, 9, rows, options);
}

}  // namespace

void parse(std::span<const std::byte> bytes) {
  decode_checked(repaired(bytes));
  decode_checked(bytes);
}

std::vector<Bytes> seeds() {
  return {encode_png(pattern(5, 7, 3)),
          encode_png(pattern(8, 3, 1)),
          encode(8, PNG_COLOR_TYPE_PALETTE, false, 9),
          encode(8, PNG_COLOR_TYPE_RGB, true, 27),
          encode(16, PNG_COLOR_TYPE_RGB_ALPHA, false, 72),
          encode(1, PNG_COLOR_TYPE_GRAY, true, 9)};
}

}  // namespace lockstep::fuzz
