#include "lockstep/data/images/image_format.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace lockstep {
namespace {

using FormatBytes = std::span<const std::byte>;

bool has_at(FormatBytes bytes, size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() &&
         std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

// The header of a binary PNM file: two numbers, and a third unless it is a bitmap.
bool begins_as_pnm(FormatBytes bytes) {
  if (bytes.size() < 3 || bytes[0] != std::byte{'P'}) return false;
  const char kind = static_cast<char>(bytes[1]);
  if (kind < '4' || kind > '6') return false;
  size_t at = 2;
  const auto space = [&] {
    const auto c = std::to_integer<unsigned>(bytes[at]);
    return c == ' ' || (c >= '\t' && c <= '\r');
  };
  for (int numbers = kind == '4' ? 2 : 3; numbers > 0; --numbers) {
    const size_t begin = at;
    while (at < bytes.size() && (space() || bytes[at] == std::byte{'#'})) {
      if (space()) {
        ++at;
        continue;
      }
      while (at < bytes.size() && bytes[at] != std::byte{'\n'}) ++at;
      if (at == bytes.size()) return true;  // a long comment
    }
    const size_t first = at;
    while (at < bytes.size() && bytes[at] >= std::byte{'0'} && bytes[at] <= std::byte{'9'}) ++at;
    if (first == begin || at == first) return false;
  }
  return at < bytes.size() && space();
}

bool begins_as_bmp(FormatBytes bytes) {
  if (!has_at(bytes, 0, "BM") || bytes.size() < 18) return false;
  constexpr unsigned sizes[] = {12, 16, 40, 52, 56, 64, 108, 124};
  const auto size = std::to_integer<unsigned>(bytes[14]);
  const bool small =
      bytes[15] == std::byte{0} && bytes[16] == std::byte{0} && bytes[17] == std::byte{0};
  return small && std::find(std::begin(sizes), std::end(sizes), size) != std::end(sizes);
}

// Of the files that are boxes, those with images.
std::string_view kind_of_boxes(FormatBytes bytes) {
  if (!has_at(bytes, 4, "ftyp") || bytes.size() < 12) return {};
  for (const char* brand : {"avif", "avis"}) {
    if (has_at(bytes, 8, brand)) return "AVIF";
  }
  for (const char* brand : {"heic", "heix", "heim", "heis", "hevc", "hevx", "mif1", "msf1"}) {
    if (has_at(bytes, 8, brand)) return "HEIC";
  }
  return has_at(bytes, 8, "crx ") ? "CR3" : "";
}

struct Signature {
  size_t at;
  std::string_view bytes, name;
};

using namespace std::string_view_literals;
constexpr Signature other_signatures[] = {
    {0, "II*\0"sv, "TIFF"},
    {0, "MM\0*"sv, "TIFF"},
    {0, "II+\0"sv, "TIFF"},
    {0, "MM\0+"sv, "TIFF"},
    {0, "\xff\x0a"sv, "JPEG XL"},
    {0, "\0\0\0\x0cJXL \r\n\x87\n"sv, "JPEG XL"},
    {0, "\0\0\0\x0cjP  \r\n\x87\n"sv, "JPEG 2000"},
    {0, "\xff\x4f\xff\x51"sv, "JPEG 2000"},
    {0, "II\xbc\x01"sv, "JPEG XR"},
    {0, "8BPS\0"sv, "PSD"},
    {0, "\0\0\1\0"sv, "ICO"},
    {0, "\x76\x2f\x31\x01"sv, "OpenEXR"},
    {0, "#?RADIANCE"sv, "Radiance HDR"},
    {0, "#?RGBE"sv, "Radiance HDR"},
    {0, "DDS \x7c"sv, "DDS"},
    {0, "qoif"sv, "QOI"},
    {0, "FLIF"sv, "FLIF"},
    {0, "gimp xcf"sv, "XCF"},
    {0, "farbfeld"sv, "farbfeld"},
    {0, "AT&TFORM"sv, "DjVu"},
    {0, "\x8aMNG\r\n\x1a\n"sv, "MNG"},
    {0, "FUJIFILMCCD-RAW"sv, "RAF"},
    {0, "IIRO"sv, "ORF"},
    {0, "SIMPLE  ="sv, "FITS"},
    {0, "<svg"sv, "SVG"},
    {128, "DICM"sv, "DICOM"},
};

}  // namespace

RecognizedImage recognize_image(FormatBytes first) {
  if (has_at(first, 0, "\xff\xd8\xff")) return {ImageFormat::jpeg, "JPEG"};
  if (has_at(first, 0, "\x89PNG\r\n\x1a\n")) return {ImageFormat::png, "PNG"};
  if (has_at(first, 0, "RIFF") && has_at(first, 8, "WEBP")) return {ImageFormat::webp, "WebP"};
  if (has_at(first, 0, "GIF87a") || has_at(first, 0, "GIF89a")) return {ImageFormat::gif, "GIF"};
  if (begins_as_bmp(first)) return {ImageFormat::bmp, "BMP"};
  if (begins_as_pnm(first)) return {ImageFormat::pnm, "PNM"};
  if (const std::string_view name = kind_of_boxes(first); !name.empty()) {
    return {ImageFormat::other, name};
  }
  for (const Signature& signature : other_signatures) {
    if (has_at(first, signature.at, signature.bytes)) return {ImageFormat::other, signature.name};
  }
  return {};
}

namespace {

// Reads numbers of 16 and 32 bits; beyond the end they are 0.
struct ExifBytes {
  FormatBytes bytes;
  bool big_endian = true;

  uint32_t number(size_t at, size_t size) const {
    if (size > bytes.size() || at > bytes.size() - size) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value = value << 8 | std::to_integer<uint32_t>(bytes[at + (big_endian ? i : size - 1 - i)]);
    }
    return value;
  }
};

// `tiff` is EXIF's contents: a TIFF header and its first directory.
int orientation_in(FormatBytes tiff) {
  if (!has_at(tiff, 0, "II*\0"sv) && !has_at(tiff, 0, "MM\0*"sv)) return 1;
  const ExifBytes exif{tiff, tiff[0] == std::byte{'M'}};
  const size_t directory = exif.number(4, 4);
  const uint32_t entries = exif.number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (entry + 12 > tiff.size()) return 1;
    constexpr uint32_t orientation = 0x112, short_type = 3;
    if (exif.number(entry, 2) != orientation || exif.number(entry + 2, 2) != short_type) continue;
    const uint32_t value = exif.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

int orientation_of_jpeg(FormatBytes file) {
  const ExifBytes numbers{file};
  for (size_t at = 2; at + 4 <= file.size();) {
    if (file[at] != std::byte{0xff}) {
      ++at;  // between segments
      continue;
    }
    const auto marker = std::to_integer<unsigned>(file[at + 1]);
    if (marker == 0xff) {
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) return 1;  // pixels begin, or the end
    if (marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8)) {
      at += 2;  // without contents
      continue;
    }
    const size_t size = numbers.number(at + 2, 2);
    if (size < 2 || size > file.size() - at - 2) return 1;
    const FormatBytes contents = file.subspan(at + 4, size - 2);
    if (marker == 0xe1 && has_at(contents, 0, "Exif\0\0"sv))
      return orientation_in(contents.subspan(6));
    at += 2 + size;
  }
  return 1;
}

int orientation_of_png(FormatBytes file) {
  const ExifBytes numbers{file};
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t size = numbers.number(at, 4);
    if (size > file.size() - at - 12) return 1;
    if (has_at(file, at + 4, "eXIf")) return orientation_in(file.subspan(at + 8, size));
    at += 12 + size;
  }
  return 1;
}

int orientation_of_webp(FormatBytes file) {
  const ExifBytes numbers{file, false};
  for (size_t at = 12; at + 8 <= file.size();) {
    const size_t size = numbers.number(at + 4, 4);
    if (size > file.size() - at - 8) return 1;
    if (has_at(file, at, "EXIF")) {
      const FormatBytes exif = file.subspan(at + 8, size);
      return orientation_in(has_at(exif, 0, "Exif\0\0"sv) ? exif.subspan(6) : exif);
    }
    at += 8 + size + size % 2;
  }
  return 1;
}

}  // namespace

int exif_orientation(FormatBytes file) {
  switch (recognize_image(file.first(std::min(file.size(), image_format_bytes))).format) {
    case ImageFormat::jpeg:
      return orientation_of_jpeg(file);
    case ImageFormat::png:
      return orientation_of_png(file);
    case ImageFormat::webp:
      return orientation_of_webp(file);
    default:
      return 1;
  }
}

}  // namespace lockstep
