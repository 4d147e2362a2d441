// Reads and writes PNG with libpng. The library reports errors by longjmp. Every function that
// calls it therefore creates no object with a destructor after its setjmp.
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image_codecs.h"

namespace lockstep {
namespace {

struct Messages {
  char text[160] = {};
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* messages = static_cast<Messages*>(png_get_error_ptr(png));
  std::snprintf(messages->text, sizeof messages->text, "%s", message);
  png_longjmp(png, 1);
}

// Warnings are errors too, except those about data after the pixels. With the descriptive chunks
// skipped, all others mean damaged data.
void on_warning(png_structp png, png_const_charp message) {
  for (const char* after : {"IDAT: Extra compressed data", "IDAT: Too much image data"}) {
    if (std::strcmp(message, after) == 0) return;
  }
  on_error(png, message);
}

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> bytes;
  size_t position = 0;
  Messages messages;

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void read_bytes(png_structp png, png_bytep target, size_t size) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (size > reader->bytes.size() - reader->position) {
    reader->position = reader->bytes.size();
    png_error(png, "the file ends too early");
  }
  std::memcpy(target, reader->bytes.data() + reader->position, size);
  reader->position += size;
}

bool read_header(Reader& reader) {
  reader.png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader.messages, on_error, on_warning);
  if (reader.png == nullptr) return false;
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) png_error(reader.png, "out of memory");
  png_set_read_fn(reader.png, &reader, read_bytes);
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  // Transparency is dropped, so it may have any values.
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER,
                              reinterpret_cast<png_const_bytep>("tRNS"), 1);
  png_set_crc_action(reader.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  // check_compressed_size() reports larger images with a better message.
  png_set_user_limits(reader.png, 0x7fffffff, 0x7fffffff);
  png_read_info(reader.png, reader.info);
  return true;
}

// Converts any stored format to 8-bit gray or RGB. Palette indices stay indices, one per byte,
// because the library would invent colors for indices beyond the palette. `stored`: gray of fewer
// bits is not expanded. Returns the number of passes, or 0 on error.
int set_transforms(Reader& reader, bool stored) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return 0;
  png_set_scale_16(reader.png);
  if (stored || png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_PALETTE) {
    png_set_packing(reader.png);
  } else {
    png_set_expand_gray_1_2_4_to_8(reader.png);
  }
  png_set_strip_alpha(reader.png);
  const int passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return passes;
}

bool read_pixels(Reader& reader, int passes, png_bytep pixels, size_t row_bytes, uint32_t rows) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < rows; ++y) png_read_row(reader.png, pixels + row_bytes * y, nullptr);
  }
  png_read_end(reader.png, nullptr);  // verifies the checksums of the rest
  return true;
}

Palette palette_of(const Reader& reader) {
  png_colorp colors = nullptr;
  int count = 0;
  png_get_PLTE(reader.png, reader.info, &colors, &count);
  Palette palette;
  for (int i = 0; i < count; ++i) {
    palette.push_back({colors[i].red, colors[i].green, colors[i].blue});
  }
  return palette;
}

// Replaces palette indices by colors.
Image colored(const Image& indices, const Palette& palette) {
  Image image{indices.height, indices.width, 3, {}};
  image.pixels.reserve(3 * indices.pixels.size());
  for (const uint8_t index : indices.pixels) {
    image.pixels.insert(image.pixels.end(), palette[index].begin(), palette[index].end());
  }
  return image;
}

// Throws DataError for an index beyond the palette.
void check_indices(const Image& indices, const Palette& palette, const std::string& name) {
  for (const uint8_t index : indices.pixels) {
    if (index < palette.size()) continue;
    throw DataError("[image] " + name + ": damaged PNG: color " + std::to_string(index) +
                    " of a palette of " + std::to_string(palette.size()));
  }
}

struct Writer {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<std::byte> bytes;
  Messages messages;

  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { png_destroy_write_struct(&png, &info); }
};

bool append(std::vector<std::byte>& target, png_bytep source, size_t size) noexcept {
  try {
    const auto* bytes = reinterpret_cast<const std::byte*>(source);
    target.insert(target.end(), bytes, bytes + size);
    return true;
  } catch (...) {
    return false;
  }
}

void write_bytes(png_structp png, png_bytep source, size_t size) {
  if (!append(static_cast<Writer*>(png_get_io_ptr(png))->bytes, source, size)) {
    png_error(png, "out of memory");
  }
}

void flush_bytes(png_structp) {}

// `palette`: if pixels are indices, else null.
bool write(Writer& writer, const uint8_t* pixels, uint32_t height, uint32_t width,
           uint32_t channels, const png_color* palette, int colors) {
  writer.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &writer.messages, on_error, on_error);
  if (writer.png == nullptr) return false;
  if (setjmp(png_jmpbuf(writer.png)) != 0) return false;
  writer.info = png_create_info_struct(writer.png);
  if (writer.info == nullptr) png_error(writer.png, "out of memory");
  png_set_write_fn(writer.png, &writer, write_bytes, flush_bytes);
  png_set_IHDR(writer.png, writer.info, width, height, 8,
               palette != nullptr ? PNG_COLOR_TYPE_PALETTE
               : channels == 1    ? PNG_COLOR_TYPE_GRAY
                                  : PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (palette != nullptr) png_set_PLTE(writer.png, writer.info, palette, colors);
  png_write_info(writer.png, writer.info);
  const size_t row_bytes = size_t{width} * channels;
  for (uint32_t y = 0; y < height; ++y) png_write_row(writer.png, pixels + row_bytes * y);
  png_write_end(writer.png, writer.info);
  return true;
}

}  // namespace

namespace detail {

StoredPng decode_stored_png(std::span<const std::byte> bytes, const std::string& name,
                            bool stored) {
  Reader reader;
  reader.bytes = bytes;
  const auto damaged = [&]() -> DataError {
    return DataError("[image] " + name + ": damaged PNG near byte " +
                     std::to_string(reader.position) + " of " + std::to_string(bytes.size()) +
                     ": " + reader.messages.text);
  };
  if (!read_header(reader)) throw damaged();
  const uint32_t height = png_get_image_height(reader.png, reader.info);
  const uint32_t width = png_get_image_width(reader.png, reader.info);
  check_compressed_size(height, width, bytes.size(), name);
  const bool indexed = png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_PALETTE;
  StoredPng result{.bits = png_get_bit_depth(reader.png, reader.info)};
  const int passes = set_transforms(reader, stored);
  if (passes == 0) throw damaged();
  Image& image = result.image;
  image = {height, width, png_get_channels(reader.png, reader.info), {}};
  const size_t row_bytes = png_get_rowbytes(reader.png, reader.info);
  if ((image.channels != 1 && image.channels != 3) ||
      row_bytes != static_cast<size_t>(image.width * image.channels)) {
    throw InternalError("[image] " + name + ": libpng gives rows of " + std::to_string(row_bytes) +
                        " bytes for " + std::to_string(width) + " pixels");
  }
  image.pixels.resize(row_bytes * height);
  if (!read_pixels(reader, passes, image.pixels.data(), row_bytes, height)) throw damaged();
  if (!indexed) return result;
  result.palette = palette_of(reader);
  check_indices(image, result.palette, name);
  return result;
}

Image decode_png(std::span<const std::byte> bytes, const std::string& name) {
  StoredPng png = decode_stored_png(bytes, name, false);
  return png.palette.empty() ? std::move(png.image) : colored(png.image, png.palette);
}

std::string png_library_version() { return std::string("libpng ") + png_get_libpng_ver(nullptr); }

}  // namespace detail

namespace {

std::vector<std::byte> encoded(const Image& image, const png_color* palette, int colors) {
  const bool fits = image.height > 0 && image.width > 0 && image.height <= max_image_side &&
                    image.width <= max_image_side && (image.channels == 1 || image.channels == 3);
  if (!fits ||
      image.pixels.size() != static_cast<size_t>(image.height * image.width * image.channels)) {
    throw InvalidArgument("[image] cannot write a PNG of " + std::to_string(image.height) + " x " +
                          std::to_string(image.width) + " x " + std::to_string(image.channels) +
                          " with " + std::to_string(image.pixels.size()) + " bytes of pixels");
  }
  Writer writer;
  if (!write(writer, image.pixels.data(), static_cast<uint32_t>(image.height),
             static_cast<uint32_t>(image.width), static_cast<uint32_t>(image.channels), palette,
             colors)) {
    throw Error(std::string("[image] libpng cannot write the image: ") + writer.messages.text);
  }
  return std::move(writer.bytes);
}

}  // namespace

std::vector<std::byte> encode_png(const Image& image) { return encoded(image, nullptr, 0); }

std::vector<std::byte> encode_png(const Image& indices, const Palette& palette) {
  constexpr size_t kMost = 256;
  size_t most = 0;
  for (const uint8_t index : indices.pixels) most = std::max(most, size_t{index} + 1);
  if (indices.channels != 1 || palette.size() > kMost || most > palette.size()) {
    throw InvalidArgument("[image] cannot write a PNG with a palette of " +
                          std::to_string(palette.size()) + " colors and " +
                          std::to_string(indices.channels) + " channels, whose largest index is " +
                          std::to_string(most) + " - 1");
  }
  std::array<png_color, kMost> colors{};
  for (size_t i = 0; i < palette.size(); ++i) {
    colors[i] = {palette[i][0], palette[i][1], palette[i][2]};
  }
  return encoded(indices, colors.data(), static_cast<int>(palette.size()));
}

}  // namespace lockstep
