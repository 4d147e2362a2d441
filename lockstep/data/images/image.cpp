#include "lockstep/data/images/image.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/data/images/image_codecs.h"
#include "lockstep/data/images/image_format.h"

namespace lockstep {
namespace detail {

void check_image_size(uint64_t height, uint64_t width, const std::string& name) {
  const std::string size = std::to_string(height) + " rows x " + std::to_string(width) + " columns";
  if (height == 0 || width == 0) throw DataError("[image] " + name + ": no pixels (" + size + ")");
  const uint64_t side = static_cast<uint64_t>(max_image_side);
  if (height > side || width > side || height * width > static_cast<uint64_t>(max_image_pixels)) {
    throw DataError("[image] " + name + ": too large: " + size + ", at most " +
                    std::to_string(max_image_side) + " x " + std::to_string(max_image_side));
  }
}

void check_compressed_size(uint64_t height, uint64_t width, size_t bytes, const std::string& name) {
  check_image_size(height, width, name);
  // Formats without a lower limit (one color in lossless WebP takes no bits) are bounded as those
  // that have one: PNG's rows of one bit need a byte for 8,256 pixels, JPEG's for 8,192, GIF's for
  // 2,731.
  constexpr uint64_t allowed = uint64_t{1} << 24, per_byte = uint64_t{1} << 14;
  if (height * width <= allowed || (height * width - allowed) / per_byte < bytes) return;
  throw DataError("[image] " + name + ": damaged: " + std::to_string(height) + " rows x " +
                  std::to_string(width) + " columns do not fit into a file of " +
                  std::to_string(bytes) + " bytes");
}

}  // namespace detail

namespace {

[[noreturn]] void refuse_format(std::span<const std::byte> bytes, const std::string& name,
                                const RecognizedImage& recognized) {
  static constexpr const char* hint =
      "JPEG, PNG, WebP, GIF, BMP and binary PNM images can be read; the content counts, not the "
      "file's name";
  if (recognized.format == ImageFormat::other) {
    throw DataError(
        "[image] " + name + ": the format " + std::string(recognized.name) + " is not supported",
        "convert the image to PNG");
  }
  if (bytes.empty()) throw DataError("[image] " + name + ": the file is empty");
  std::string first;
  for (size_t i = 0; i < bytes.size() && i < 8; ++i) {
    static constexpr char digits[] = "0123456789abcdef";
    const auto value = std::to_integer<unsigned>(bytes[i]);
    if (i > 0) first += ' ';
    first += digits[value >> 4];
    first += digits[value & 15];
  }
  throw DataError("[image] " + name + ": not an image of a known format (" +
                      std::to_string(bytes.size()) + " bytes, the first are " + first + ")",
                  hint);
}

// Whether a file that is to be an image is a PNM of any kind. Its decoder names unsupported kinds.
// Other text may also start with P.
bool claims_pnm(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{'P'} && bytes[1] >= std::byte{'1'} &&
         bytes[1] <= std::byte{'7'} && (bytes[2] <= std::byte{' '} || bytes[2] == std::byte{'#'});
}

}  // namespace

Image decode_image(std::span<const std::byte> bytes, const std::string& name,
                   const LeastSize& least) {
  const RecognizedImage recognized =
      recognize_image(bytes.first(std::min(bytes.size(), image_format_bytes)));
  switch (recognized.format) {
    case ImageFormat::jpeg:
      return detail::decode_jpeg(bytes, name, least);
    case ImageFormat::png:
      return detail::decode_png(bytes, name);
    case ImageFormat::webp:
      return detail::decode_webp(bytes, name);
    case ImageFormat::bmp:
      return detail::decode_bmp(bytes, name);
    case ImageFormat::gif:
      return detail::decode_gif(bytes, name);
    case ImageFormat::pnm:
    case ImageFormat::none:
    case ImageFormat::other:
      break;
  }
  if (claims_pnm(bytes)) return detail::decode_pnm(bytes, name);
  refuse_format(bytes, name, recognized);
}

Image upright(Image image, int orientation) {
  if (orientation < 1 || orientation > 8) {
    throw InvalidArgument("[image] there is no EXIF orientation " + std::to_string(orientation),
                          "orientations are 1 to 8");
  }
  if (orientation == 1) return image;
  // How the stored image becomes the one to be seen: rows and columns exchanged first, then
  // reversed.
  const bool exchanged = orientation >= 5;
  const bool reversed_columns =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool reversed_rows =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image result{exchanged ? image.width : image.height, exchanged ? image.height : image.width,
               image.channels, std::vector<uint8_t>(image.pixels.size()), image.scale};
  DecodedScale& scale = result.scale;
  if (exchanged) {
    std::swap(scale.height, scale.width);
    std::swap(scale.top, scale.left);
  }
  if (scale.divisor > 1 && reversed_rows) {
    scale.top = result.height * scale.divisor - scale.height - scale.top;
  }
  if (scale.divisor > 1 && reversed_columns) {
    scale.left = result.width * scale.divisor - scale.width - scale.left;
  }
  const auto channels = static_cast<size_t>(image.channels);
  uint8_t* to = result.pixels.data();
  for (int64_t y = 0; y < result.height; ++y) {
    for (int64_t x = 0; x < result.width; ++x, to += channels) {
      const int64_t row = reversed_rows ? result.height - 1 - y : y;
      const int64_t column = reversed_columns ? result.width - 1 - x : x;
      const int64_t at = exchanged ? column * image.width + row : row * image.width + column;
      std::memcpy(to, image.pixels.data() + static_cast<size_t>(at) * channels, channels);
    }
  }
  return result;
}

Image convert_channels(Image image, int64_t channels) {
  if (image.channels == channels && (channels == 1 || channels == 3)) return image;
  Image result{image.height, image.width, channels, {}, image.scale};
  const size_t n = static_cast<size_t>(image.height * image.width);
  if (image.channels == 1 && channels == 3) {
    result.pixels.resize(3 * n);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t gray = image.pixels[i];
      result.pixels[3 * i] = result.pixels[3 * i + 1] = result.pixels[3 * i + 2] = gray;
    }
    return result;
  }
  if (image.channels == 3 && channels == 1) {
    result.pixels.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t r = image.pixels[3 * i], g = image.pixels[3 * i + 1],
                     b = image.pixels[3 * i + 2];
      result.pixels[i] = static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
    }
    return result;
  }
  throw InvalidArgument("[image] cannot convert " + std::to_string(image.channels) +
                            " channels to " + std::to_string(channels),
                        "only 1 (gray) and 3 (color) can be converted to each other");
}

void to_planes_into(const Image& image, uint8_t* planes) {
  const auto channels = static_cast<size_t>(image.channels);
  const auto space = static_cast<size_t>(image.height * image.width);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < space; ++i) planes[c * space + i] = image.pixels[i * channels + c];
  }
}

std::vector<uint8_t> to_planes(const Image& image) {
  std::vector<uint8_t> planes(image.pixels.size());
  to_planes_into(image, planes.data());
  return planes;
}

std::string image_library_versions() {
  return detail::jpeg_library_version() + ", " + detail::png_library_version() + ", " +
         detail::webp_library_version() + ", " + detail::gif_library_version();
}

std::string image_library_builds() {
  std::string text = image_library_versions();
  // A function that is not found is linked statically: the build of Lockstep fixes it.
  for (const char* const name : {"jpeg_read_scanlines", "png_read_row", "WebPDecode", "DGifOpen"}) {
    text += ", " + build_id_of(dlsym(RTLD_DEFAULT, name));
  }
  return text;
}

}  // namespace lockstep
