// Encodes JPEG and PNG files of all kinds. Lockstep itself only reads them.
#pragma once

#include <png.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/data/images/image.h"

namespace lockstep::testing {

struct JpegOptions {
  int quality = 95;
  bool progressive = false;
  bool cmyk = false;  // four channels
  int subsampling = 2;
  bool ycck = false;  // for cmyk: luma and chroma of the inks
  int restart_interval = 0;
};

// Images have 1, 3 or (CMYK) 4 channels.
std::vector<std::byte> encode_jpeg(const Image& image, const JpegOptions& options = {});

struct PngOptions {
  int bits = 8;
  int type = PNG_COLOR_TYPE_RGB;
  bool interlaced = false;
  std::vector<png_color> palette{};
  std::vector<png_byte> palette_alpha{};
  bool text = false;
};

// A PNG with rows that are already packed.
std::vector<std::byte> raw_png(uint32_t height, uint32_t width,
                               const std::vector<std::vector<uint8_t>>& rows,
                               const PngOptions& options);

}  // namespace lockstep::testing
