#include "tests/data/encode.h"
#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

using testing::encode_gif;

void parse(std::span<const std::byte> bytes) { decode_checked(bytes); }

std::vector<Bytes> seeds() {
  const auto indices = [](int64_t height, int64_t width, int colors) {
    Image image = pattern(height, width, 1);
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel % colors);
    return image;
  };
  const auto palette = [](int64_t colors) { return pattern(colors, 3, 1).pixels; };
  return {
      encode_gif(indices(13, 21, 4), palette(4)),
      encode_gif(indices(9, 8, 16), palette(16), {.interlaced = true, .images = 2}),
      encode_gif(indices(5, 5, 256), palette(256),
                 {.transparent = 3, .left = 2, .top = 1, .screen_height = 9, .screen_width = 8})};
}

}  // namespace lockstep::fuzz
