// JPEG and PNG files of every kind, which Lockstep reads and does not write.
#pragma once

#include <png.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep::testing {

struct JpegOptions {
  int quality = 95;
  bool progressive = false;
  bool cmyk = false;  // of four channels
  int subsampling = 2;
  bool ycck = false;  // of cmyk: with inks' luma and chroma
  int restart_interval = 0;
};

// Of 1, 3 or (CMYK) 4 channels.
std::vector<std::byte> encode_jpeg(const Image& image, const JpegOptions& options = {});

struct PngOptions {
  int bits = 8;
  int type = PNG_COLOR_TYPE_RGB;
  bool interlaced = false;
  std::vector<png_color> palette{};
  std::vector<png_byte> palette_alpha{};
  bool text = false;
};

// A PNG of rows that are packed already.
std::vector<std::byte> raw_png(uint32_t height, uint32_t width,
                               const std::vector<std::vector<uint8_t>>& rows,
                               const PngOptions& options);

}  // namespace lockstep::testing
