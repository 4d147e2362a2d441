#include "tests/data/encode.h"
#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

using testing::animated_webp;
using testing::encode_webp;

void parse(std::span<const std::byte> bytes) { decode_checked(bytes); }

std::vector<Bytes> seeds() {
  const Image colors = pattern(13, 21, 3), clear = pattern(9, 8, 4);
  const Bytes lossless = encode_webp(colors, true), lossy = encode_webp(colors, false, 40);
  return {lossless,
          lossy,
          encode_webp(clear, true),
          encode_webp(clear, false),
          animated_webp(lossless, 20, 30),
          animated_webp(lossy, 20, 30)};
}

}  // namespace lockstep::fuzz
