// Helpers for image targets.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/data/images/image.h"

namespace lockstep::fuzz {

// Gentle gradients, slightly different in each channel.
inline Image pattern(int64_t height, int64_t width, int64_t channels) {
  Image image{height, width, channels, {}};
  for (int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(3 * i + i / width));
  }
  return image;
}

// Decodes an image and checks the result.
inline void decode_checked(std::span<const std::byte> bytes) {
  const Image image = decode_image(bytes, "file");
  const bool sound =
      image.height > 0 && image.width > 0 && (image.channels == 1 || image.channels == 3) &&
      image.pixels.size() == static_cast<size_t>(image.height * image.width * image.channels);
  if (!sound) throw InternalError("[fuzz] an image of another size than it says");
}

}  // namespace lockstep::fuzz
