#include "tests/data/encode.h"

// clang-format off
#include <cstdio>  // jpeglib.h needs it first
// clang-format on

#include <gif_lib.h>
#include <jpeglib.h>
#include <webp/decode.h>
#include <webp/encode.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace lockstep::testing {

using Bytes = std::vector<std::byte>;

Bytes encode_jpeg(const Image& image, const JpegOptions& options) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = options.cmyk ? JCS_CMYK : image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  if (options.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, options.quality, TRUE);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = options.subsampling;
  info.restart_interval = static_cast<unsigned>(options.restart_interval);
  if (options.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<unsigned char*>(image.pixels.data() +
                                           info.next_scanline * static_cast<size_t>(image.width) *
                                               static_cast<size_t>(image.channels));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(out);
  Bytes bytes(begin, begin + size);
  jpeg_destroy_compress(&info);
  std::free(out);
  return bytes;
}

Bytes raw_png(uint32_t height, uint32_t width, const std::vector<std::vector<uint8_t>>& rows,
              const PngOptions& options) {
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp p, png_bytep data, size_t n) {
        auto* target = static_cast<Bytes*>(png_get_io_ptr(p));
        const auto* begin = reinterpret_cast<const std::byte*>(data);
        target->insert(target->end(), begin, begin + n);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, width, height, options.bits, options.type,
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!options.palette.empty()) {
    png_set_PLTE(png, info, options.palette.data(), static_cast<int>(options.palette.size()));
  }
  if (!options.palette_alpha.empty()) {
    png_set_tRNS(png, info, options.palette_alpha.data(),
                 static_cast<int>(options.palette_alpha.size()), nullptr);
  }
  if (options.text) {
    png_set_gAMA(png, info, 0.45455);
    png_text text{};
    text.compression = PNG_TEXT_COMPRESSION_NONE;
    text.key = const_cast<char*>("Comment");
    text.text = const_cast<char*>("made by a test");
    png_set_text(png, info, &text, 1);
  }
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  for (const auto& row : rows) pointers.push_back(const_cast<png_bytep>(row.data()));
  if (options.interlaced) png_set_interlace_handling(png);
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::vector<std::byte> encode_webp(const Image& image, bool lossless, float quality) {
  uint8_t* out = nullptr;
  const auto height = static_cast<int>(image.height), width = static_cast<int>(image.width);
  const auto stride = static_cast<int>(image.width * image.channels);
  const uint8_t* const pixels = image.pixels.data();
  size_t size = 0;
  if (image.channels == 4) {
    size = lossless ? WebPEncodeLosslessRGBA(pixels, width, height, stride, &out)
                    : WebPEncodeRGBA(pixels, width, height, stride, quality, &out);
  } else {
    size = lossless ? WebPEncodeLosslessRGB(pixels, width, height, stride, &out)
                    : WebPEncodeRGB(pixels, width, height, stride, quality, &out);
  }
  const auto* begin = reinterpret_cast<const std::byte*>(out);
  Bytes bytes(begin, begin + size);
  WebPFree(out);
  return bytes;
}

std::vector<std::byte> animated_webp(const std::vector<std::byte>& still, int64_t height,
                                     int64_t width) {
  const auto number = [](int64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
  };
  const auto chunk = [&](const std::string& name, const std::string& contents) {
    const auto size = static_cast<int64_t>(contents.size());
    return name + number(size, 4) + contents + std::string(contents.size() % 2, '\0');
  };
  int still_width = 0, still_height = 0;
  WebPGetInfo(reinterpret_cast<const uint8_t*>(still.data()), still.size(), &still_width,
              &still_height);
  const std::string inner(reinterpret_cast<const char*>(still.data()) + 12, still.size() - 12);
  // Offsets are stored in units of 2 pixels.
  const std::string frame =
      chunk("ANMF", number(4 / 2, 3) + number(2 / 2, 3) + number(still_width - 1, 3) +
                        number(still_height - 1, 3) + number(40, 3) + std::string(1, '\0') + inner);
  const std::string body =
      "WEBP" + chunk("VP8X", number(2, 4) + number(width - 1, 3) + number(height - 1, 3)) +
      chunk("ANIM", std::string(6, '\0')) + frame + frame;
  const std::string file = "RIFF" + number(static_cast<int64_t>(body.size()), 4) + body;
  const auto* begin = reinterpret_cast<const std::byte*>(file.data());
  return {begin, begin + file.size()};
}

std::vector<std::byte> encode_gif(const Image& indices, const std::vector<uint8_t>& palette,
                                  const GifOptions& options) {
  Bytes bytes;
  int error = 0;
  const auto require = [](bool holds) {
    if (!holds) throw std::runtime_error("giflib cannot write the image");
  };
  GifFileType* const gif = EGifOpen(
      &bytes,
      [](GifFileType* file, const GifByteType* data, int size) {
        auto* const target = static_cast<Bytes*>(file->UserData);
        const auto* begin = reinterpret_cast<const std::byte*>(data);
        target->insert(target->end(), begin, begin + size);
        return size;
      },
      &error);
  require(gif != nullptr);
  EGifSetGifVersion(gif, true);
  const auto colors = static_cast<int>(palette.size() / 3);
  std::vector<GifColorType> entries(static_cast<size_t>(colors));
  std::memcpy(entries.data(), palette.data(), palette.size());
  ColorMapObject* const map = GifMakeMapObject(colors, entries.data());
  const auto height = static_cast<int>(indices.height), width = static_cast<int>(indices.width);
  const int rows = options.screen_height > 0 ? static_cast<int>(options.screen_height) : height;
  const int columns = options.screen_width > 0 ? static_cast<int>(options.screen_width) : width;
  require(EGifPutScreenDesc(gif, columns, rows, 8, 1, map) == GIF_OK);
  for (int image = 0; image < options.images; ++image) {
    const GraphicsControlBlock control{DISPOSAL_UNSPECIFIED, false, 4, options.transparent};
    GifByteType packed[4];
    const size_t size = EGifGCBToExtension(&control, packed);
    require(EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, static_cast<int>(size), packed) ==
            GIF_OK);
    require(EGifPutImageDesc(gif, static_cast<int>(options.left), static_cast<int>(options.top),
                             width, height, options.interlaced, nullptr) == GIF_OK);
    std::vector<int> order;
    for (const auto& [first, step] : {std::pair{0, 8}, {4, 8}, {2, 4}, {1, 2}}) {
      for (int y = first; y < height; y += step) order.push_back(y);
    }
    if (!options.interlaced) std::sort(order.begin(), order.end());
    for (const int y : order) {
      std::vector<GifPixelType> row(indices.pixels.begin() + y * width,
                                    indices.pixels.begin() + (y + 1) * width);
      for (GifPixelType& index : row) index = static_cast<GifPixelType>((index + image) % colors);
      require(EGifPutLine(gif, row.data(), width) == GIF_OK);
    }
  }
  GifFreeMapObject(map);
  require(EGifCloseFile(gif, &error) == GIF_OK);
  return bytes;
}

}  // namespace lockstep::testing
