#include "tests/data/encode.h"
#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

using testing::encode_jpeg;

void parse(std::span<const std::byte> bytes) { decode_checked(bytes); }

std::vector<Bytes> seeds() {
  const Image colors = pattern(13, 21, 3), gray = pattern(13, 21, 1), inks = pattern(13, 21, 4);
  return {encode_jpeg(colors, {.quality = 90}),
          encode_jpeg(colors, {.quality = 50, .progressive = true}),
          encode_jpeg(gray, {.quality = 75, .subsampling = 1, .restart_interval = 2}),
          encode_jpeg(inks, {.quality = 90, .cmyk = true, .subsampling = 1}),
          encode_jpeg(inks, {.quality = 60, .cmyk = true, .ycck = true}),
          encode_jpeg(gray, {.quality = 20, .progressive = true, .subsampling = 1})};
}

}  // namespace lockstep::fuzz
