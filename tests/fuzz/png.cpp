#include <png.h>
#include <zlib.h>

#include <algorithm>

#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

uint32_t number_at(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[at + i]);
  return value;
}

// With the checksums of chunks set right, which random changes hardly ever hit.
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

Bytes encode(int bits, int type, bool interlaced, size_t row_bytes) {
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp p, png_bytep data, size_t n) {
        auto* target = static_cast<Bytes*>(png_get_io_ptr(p));
        const auto* begin = reinterpret_cast<const std::byte*>(data);
        target->insert(target->end(), begin, begin + n);
      },
      [](png_structp) {});
  constexpr uint32_t kHeight = 11, kWidth = 9;
  png_set_IHDR(png, info, kWidth, kHeight, bits, type,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  const png_color palette[4] = {{0, 0, 0}, {255, 0, 0}, {0, 255, 0}, {9, 8, 7}};
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 4);
  png_write_info(png, info);
  const int passes = png_set_interlace_handling(png);
  std::vector<png_byte> row(row_bytes);
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < kHeight; ++y) {
      std::fill(row.begin(), row.end(),
                static_cast<png_byte>(type == PNG_COLOR_TYPE_PALETTE ? y % 4 : 7 * y));
      png_write_row(png, row.data());
    }
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
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
