#include <cstdio>
#include <cstdlib>
// After stdio, which it needs.
#include <jpeglib.h>

#include "lockstep/data/image.h"
#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

Bytes encode(J_COLOR_SPACE colours, int channels, int quality, bool progressive, int restart) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  const Image image = pattern(13, 21, channels);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = channels;
  info.in_color_space = colours;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.restart_interval = static_cast<unsigned>(restart);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<unsigned char*>(
        image.pixels.data() + static_cast<int64_t>(info.next_scanline) * image.width * channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(out);
  Bytes bytes(begin, begin + size);
  jpeg_destroy_compress(&info);
  std::free(out);
  return bytes;
}

}  // namespace

void parse(std::span<const std::byte> bytes) { decode_checked(bytes); }

std::vector<Bytes> seeds() {
  return {encode(JCS_RGB, 3, 90, false, 0), encode(JCS_RGB, 3, 50, true, 0),
          encode(JCS_GRAYSCALE, 1, 75, false, 2), encode(JCS_CMYK, 4, 90, false, 0),
          encode(JCS_GRAYSCALE, 1, 20, true, 0)};
}

}  // namespace lockstep::fuzz
