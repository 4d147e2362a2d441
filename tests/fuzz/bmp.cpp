#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

std::string little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// 5 rows of 7 columns; the palette is gray.
Bytes bmp(int bits, int compression, int colors, const std::string& masks,
          const std::string& pixels, int32_t height = 5) {
  std::string header = little(40, 4) + little(7, 4) + little(static_cast<uint32_t>(height), 4) +
                       little(1, 2) + little(static_cast<uint64_t>(bits), 2) +
                       little(static_cast<uint64_t>(compression), 4) + little(0, 4) + little(0, 8) +
                       little(static_cast<uint64_t>(colors), 8) + masks;
  for (int i = 0; i < colors; ++i) header += std::string(4, static_cast<char>(9 * i));
  return bytes_of("BM" + little(0, 8) + little(14 + header.size(), 4) + header + pixels);
}

}  // namespace

void parse(std::span<const std::byte> bytes) { decode_checked(bytes); }

std::vector<Bytes> seeds() {
  const std::string masks = little(0xf800, 4) + little(0x7e0, 4) + little(0x1f, 4);
  std::string rle8, rle4;
  for (int y = 0; y < 5; ++y) {
    rle8 += std::string("\3\1\0\3\1\2\3\0\1\1\0\0", 12);
    rle4 += std::string("\3\x12\0\4\x12\x33\0\0", 8);
  }
  return {bmp(24, 0, 0, "", std::string(120, 'x')),
          bmp(32, 0, 0, "", std::string(140, 'y'), -5),
          bmp(16, 3, 0, masks, std::string(80, 'z')),
          bmp(16, 0, 0, "", std::string(80, 'w')),
          bmp(8, 0, 4, "", std::string(40, '\3')),
          bmp(4, 0, 16, "", std::string(20, '\x5a')),
          bmp(1, 0, 2, "", std::string(20, '\x5a')),
          bmp(8, 1, 4, "", rle8 + std::string("\0\1", 2)),
          bmp(4, 2, 16, "", rle4 + std::string("\0\2\1\1\0\1", 6))};
}

}  // namespace lockstep::fuzz
