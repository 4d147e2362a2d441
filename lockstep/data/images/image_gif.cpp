// Decodes the first image of a GIF file with giflib.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image_codecs.h"

namespace lockstep::detail {
namespace {

struct GifSource {
  std::span<const std::byte> bytes;
  size_t position = 0;
};

int read_gif_bytes(GifFileType* gif, GifByteType* to, int size) {
  auto* const source = static_cast<GifSource*>(gif->UserData);
  const size_t count =
      std::min(static_cast<size_t>(std::max(size, 0)), source->bytes.size() - source->position);
  if (count > 0) std::memcpy(to, source->bytes.data() + source->position, count);
  source->position += count;
  return static_cast<int>(count);
}

void close_gif(GifFileType* gif) {
  int error = 0;
  if (gif != nullptr) DGifCloseFile(gif, &error);
}

class GifReader {
 public:
  GifReader(std::span<const std::byte> bytes, const std::string& name)
      : source_{bytes}, name_(name) {}

  Image read() {
    int error = 0;
    gif_.reset(DGifOpen(&source_, read_gif_bytes, &error));
    if (!gif_) damaged(error);
    check_image_size(static_cast<uint64_t>(std::max(gif_->SHeight, 1)),
                     static_cast<uint64_t>(std::max(gif_->SWidth, 1)), name_);
    find_image();
    const GifImageDesc& frame = gif_->Image;
    if (frame.Width < 1 || frame.Height < 1 || frame.Left < 0 || frame.Top < 0) {
      refuse("its image has no pixels");
    }
    const ColorMapObject* const colors = frame.ColorMap ? frame.ColorMap : gif_->SColorMap;
    if (colors == nullptr) refuse("it has no colors");
    // As browsers and others do, the canvas grows if the image needs it.
    const int64_t height = std::max<int64_t>(gif_->SHeight, int64_t{frame.Top} + frame.Height);
    const int64_t width = std::max<int64_t>(gif_->SWidth, int64_t{frame.Left} + frame.Width);
    check_compressed_size(static_cast<uint64_t>(height), static_cast<uint64_t>(width),
                          source_.bytes.size(), name_);
    Image image{height, width, 3, {}};
    const int outside = transparent_ >= 0 ? transparent_ : 0;
    const bool covers = frame.Height == height && frame.Width == width;
    std::vector<GifPixelType> row(static_cast<size_t>(frame.Width));
    image.pixels.resize(static_cast<size_t>(3 * height * width));
    if (!covers) {
      for (int64_t i = 0; i < height * width; ++i) {
        put(image.pixels.data() + 3 * i, *colors, outside < colors->ColorCount ? outside : 0);
      }
    }
    const auto read_row = [&](int64_t y) {
      if (DGifGetLine(gif_.get(), row.data(), frame.Width) != GIF_OK) damaged(gif_->Error);
      uint8_t* to = image.pixels.data() + 3 * ((frame.Top + y) * width + frame.Left);
      for (const GifPixelType index : row) {
        if (index >= colors->ColorCount) {
          refuse("color " + std::to_string(index) + " of a palette of " +
                 std::to_string(colors->ColorCount));
        }
        put(to, *colors, index);
        to += 3;
      }
    };
    struct Pass {
      int64_t first, step;
    };
    constexpr Pass interlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}}, in_order[] = {{0, 1}};
    for (const Pass& pass :
         frame.Interlace ? std::span<const Pass>(interlaced) : std::span<const Pass>(in_order)) {
      for (int64_t y = pass.first; y < frame.Height; y += pass.step) read_row(y);
    }
    return image;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError("[image] " + name_ + ": damaged GIF near byte " +
                    std::to_string(source_.position) + " of " +
                    std::to_string(source_.bytes.size()) + ": " + what);
  }
  [[noreturn]] void damaged(int error) const {
    const char* const text = GifErrorString(error);
    refuse(text != nullptr ? text : "invalid data");
  }

  static void put(uint8_t* to, const ColorMapObject& colors, int index) {
    const GifColorType& color = colors.Colors[index];
    to[0] = color.Red;
    to[1] = color.Green;
    to[2] = color.Blue;
  }

  // Reads up to the pixels of the first image.
  void find_image() {
    while (true) {
      GifRecordType record = UNDEFINED_RECORD_TYPE;
      if (DGifGetRecordType(gif_.get(), &record) != GIF_OK) damaged(gif_->Error);
      if (record == TERMINATE_RECORD_TYPE) refuse("it has no image");
      if (record == IMAGE_DESC_RECORD_TYPE) {
        if (DGifGetImageDesc(gif_.get()) != GIF_OK) damaged(gif_->Error);
        return;
      }
      if (record != EXTENSION_RECORD_TYPE) refuse("a record of an unknown kind");
      int kind = 0;
      GifByteType* block = nullptr;
      if (DGifGetExtension(gif_.get(), &kind, &block) != GIF_OK) damaged(gif_->Error);
      while (block != nullptr) {
        GraphicsControlBlock control;
        if (kind == GRAPHICS_EXT_FUNC_CODE &&
            DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
          transparent_ = control.TransparentColor;
        }
        if (DGifGetExtensionNext(gif_.get(), &block) != GIF_OK) damaged(gif_->Error);
      }
    }
  }

  GifSource source_;
  const std::string& name_;
  std::unique_ptr<GifFileType, decltype(&close_gif)> gif_{nullptr, close_gif};
  int transparent_ = NO_TRANSPARENT_COLOR;
};

}  // namespace

Image decode_gif(std::span<const std::byte> bytes, const std::string& name) {
  return GifReader(bytes, name).read();
}

// The library has no function for its version. Its LZW decoder yields the same bytes in all of
// them.
std::string gif_library_version() {
  return "giflib " + std::to_string(GIFLIB_MAJOR) + "." + std::to_string(GIFLIB_MINOR) + "." +
         std::to_string(GIFLIB_RELEASE);
}

}  // namespace lockstep::detail
