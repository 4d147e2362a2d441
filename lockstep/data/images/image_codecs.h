// Internal part of image.h: one decoder for each format. Not for use outside lockstep/data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/images/image.h"

namespace lockstep::detail {

// The decoders of decode_image(), for bytes with the format's signature.
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                  const LeastSize& least);
Image decode_png(std::span<const std::byte> bytes, const std::string& name);
// A PNG file without colors for its indices: `palette` is empty if it has none. `bits` of each
// value in the file. With `stored`, gray of fewer than 8 bits has the values of the file.
struct StoredPng {
  Image image = {};
  Palette palette = {};
  int bits = 8;
};
StoredPng decode_stored_png(std::span<const std::byte> bytes, const std::string& name, bool stored);
Image decode_pnm(std::span<const std::byte> bytes, const std::string& name);
Image decode_webp(std::span<const std::byte> bytes, const std::string& name);
Image decode_bmp(std::span<const std::byte> bytes, const std::string& name);
Image decode_gif(std::span<const std::byte> bytes, const std::string& name);

// Of the loaded library where it tells its version, else of its header.
std::string jpeg_library_version();
std::string png_library_version();
std::string webp_library_version();
std::string gif_library_version();

// Throws DataError if the image is empty or exceeds the limits.
void check_image_size(uint64_t height, uint64_t width, const std::string& name);

// The same for an image of a compressed format. Also throws DataError if the file is too short for
// so large an image, so that a header alone, in many threads at once, cannot allocate much memory:
// 2^24 pixels and 2^14 for each byte are allowed.
void check_compressed_size(uint64_t height, uint64_t width, size_t bytes, const std::string& name);

}  // namespace lockstep::detail
