#include "lockstep/data/images/image.h"

#include <cstring>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image_codecs.h"

namespace lockstep {
namespace {

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

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

}  // namespace detail

Image decode_image(std::span<const std::byte> bytes, const std::string& name) {
  if (starts_with(bytes, "\xff\xd8\xff")) return detail::decode_jpeg(bytes, name);
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) return detail::decode_png(bytes, name);
  // Every kind of PNM goes to its decoder, which reports unsupported kinds. Other text may also
  // start with P.
  if (bytes.size() >= 3 && bytes[0] == std::byte{'P'} && bytes[1] >= std::byte{'1'} &&
      bytes[1] <= std::byte{'7'} && (bytes[2] <= std::byte{' '} || bytes[2] == std::byte{'#'})) {
    return detail::decode_pnm(bytes, name);
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
  throw DataError(
      "[image] " + name + ": not a JPEG, PNG or PNM file (" + std::to_string(bytes.size()) +
          " bytes, the first are " + first + ")",
      "only JPEG, PNG and binary PNM images can be read; the content counts, not the file's "
      "name");
}

Image convert_channels(Image image, int64_t channels) {
  if (image.channels == channels && (channels == 1 || channels == 3)) return image;
  Image result{image.height, image.width, channels, {}};
  const size_t n = static_cast<size_t>(image.height * image.width);
  if (image.channels == 1 && channels == 3) {
    result.pixels.resize(3 * n);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t grey = image.pixels[i];
      result.pixels[3 * i] = result.pixels[3 * i + 1] = result.pixels[3 * i + 2] = grey;
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
                        "only 1 (grey) and 3 (colour) can be converted to each other");
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
  return detail::jpeg_library_version() + ", " + detail::png_library_version();
}

}  // namespace lockstep
