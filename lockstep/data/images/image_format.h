// Formats of image files, recognized by their first bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

enum class ImageFormat {
  none,  // no image of a format that is known
  jpeg,
  png,
  pnm,
  webp,
  bmp,
  gif,
  other  // an image of a format that decode_image() does not read
};

struct RecognizedImage {
  ImageFormat format = ImageFormat::none;
  std::string_view name = {};  // "JPEG", "TIFF"; "" for none

  bool readable() const { return format != ImageFormat::none && format != ImageFormat::other; }
};

// As many bytes as any format needs to be recognized.
inline constexpr size_t image_format_bytes = 132;

// The format of a file that begins with these bytes. Text that only begins as a PNM file does is
// none. Thread-safe.
RecognizedImage recognize_image(std::span<const std::byte> first);

// Which of the eight orientations of EXIF a JPEG, PNG or WebP file names: 1 (as stored) to 8. 1 if
// it names none, or is damaged. The bytes may come from anyone. Thread-safe.
int exif_orientation(std::span<const std::byte> file);

}  // namespace lockstep
