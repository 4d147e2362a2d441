// Encodes JPEG, PNG, WebP and GIF files of all kinds. Lockstep itself only reads them.
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

// Images have 3 channels, or 4 with transparency.
std::vector<std::byte> encode_webp(const Image& image, bool lossless, float quality = 90);
// An animation on a larger canvas, whose first frame is `still`, a WebP file, at (2, 4), and whose
// second is the same again.
std::vector<std::byte> animated_webp(const std::vector<std::byte>& still, int64_t height,
                                     int64_t width);

struct GifOptions {
  bool interlaced = false;
  int transparent = -1;                         // index
  int64_t left = 0, top = 0;                    // of the image on its canvas
  int64_t screen_height = 0, screen_width = 0;  // 0: the image's
  int images = 1;
};
// `indices` has one channel. The palette has a power of two of colors, at least 2, as RGB.
std::vector<std::byte> encode_gif(const Image& indices, const std::vector<uint8_t>& palette,
                                  const GifOptions& options = {});

}  // namespace lockstep::testing
