// WebP, GIF and BMP: correct pixels from valid files, and only DataError from invalid ones. Formats
// are recognized by content, and EXIF orientations are found.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image.h"
#include "lockstep/data/images/image_format.h"
#include "tests/data/damage.h"
#include "tests/data/encode.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::animated_webp;
using testing::encode_gif;
using testing::encode_jpeg;
using testing::encode_webp;
using testing::expect_truncations_refused;
using testing::message_of;
using testing::patterned;
using testing::survivors_of_damage;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::string little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// ---- WebP ----

TEST(WebP, LosslessImagesAreExactAndLoseTheirTransparency) {
  for (const auto& [height, width] : {std::pair{1, 1}, {7, 5}, {33, 64}}) {
    const Image image = patterned(height, width, 3, 1);
    EXPECT_EQ(decode_image(encode_webp(image, true), "x"), image);
    Image opaque = image;
    opaque.channels = 4;
    opaque.pixels.clear();
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      for (size_t c = 0; c < 3; ++c) opaque.pixels.push_back(image.pixels[i + c]);
      opaque.pixels.push_back(static_cast<uint8_t>(1 + i % 255));
    }
    EXPECT_EQ(decode_image(encode_webp(opaque, true), "x"), image);
  }
}

TEST(WebP, LossyImagesAreClose) {
  Image image{20, 30, 3, {}};
  for (int i = 0; i < 600; ++i) {
    for (const int c : {0, 1, 2})
      image.pixels.push_back(static_cast<uint8_t>(60 + i / 10 + 20 * c));
  }
  const Image back = decode_image(encode_webp(image, false, 98), "x");
  ASSERT_EQ(back.pixels.size(), image.pixels.size());
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    ASSERT_NEAR(back.pixels[i], image.pixels[i], 12) << i;
  }
}

TEST(WebP, OfAnimationsTheFirstFrameIsReadOnItsCanvas) {
  const Image frame = patterned(6, 5, 3, 3);
  const Image image = decode_image(animated_webp(encode_webp(frame, true), 10, 12), "x");
  ASSERT_EQ(image.height, 10);
  ASSERT_EQ(image.width, 12);
  for (int64_t y = 0; y < 10; ++y) {
    for (int64_t x = 0; x < 12; ++x) {
      const bool inside = y >= 2 && y < 8 && x >= 4 && x < 9;
      for (int64_t c = 0; c < 3; ++c) {
        const int expected =
            inside ? frame.pixels[static_cast<size_t>(3 * ((y - 2) * 5 + x - 4) + c)] : 0;
        ASSERT_EQ(image.pixels[static_cast<size_t>(3 * (12 * y + x) + c)], expected);
      }
    }
  }
}

TEST(WebP, DamageGivesADataErrorOrAnImageButNothingWorse) {
  const Bytes lossless = encode_webp(patterned(8, 8, 3, 1), true);
  const Bytes lossy = encode_webp(patterned(8, 8, 3, 1), false);
  expect_truncations_refused(lossless);
  expect_truncations_refused(lossy);
  expect_truncations_refused(animated_webp(lossless, 16, 16));
  survivors_of_damage(lossless);
  survivors_of_damage(lossy);
  survivors_of_damage(animated_webp(encode_webp(patterned(3, 3, 3, 1), true), 9, 9));
}

// Without this, a header of a few bytes would allocate 768 MiB in each thread.
TEST(ImageFormats, AHeaderAloneAllocatesNoLargeImage) {
  const std::string word = little(0x3fff, 2);
  const std::string frame = little(0x10, 3) + "\x9d\x01\x2a" + word + word;  // of VP8
  const std::string lossless = "\x2f" + little(0x3fff - 1 + (uint64_t{0x3fff - 1} << 14), 4);
  const auto riff = [](const std::string& kind, const std::string& contents) {
    const std::string padded = contents + std::string(contents.size() % 2, '\0');
    return "RIFF" + little(12 + padded.size(), 4) + "WEBP" + kind + little(contents.size(), 4) +
           padded;
  };
  const std::string gif = "GIF89a" + word + word + std::string("\x80\0\0", 3) +
                          std::string(6, '\x7f') + "," + std::string(4, '\0');
  const std::pair<const char*, std::string> files[] = {
      {"WebP", riff("VP8 ", frame)},
      {"lossless WebP", riff("VP8L", lossless)},
      {"GIF", gif + word + word + std::string("\0\x02\x02\x4c\x01\0;", 7)},
      {"GIF with a small image", gif + std::string("\1\0\1\0\0\x02\x02\x4c\x01\0;", 11)},
  };
  for (const auto& [format, text] : files) {
    const std::string message =
        message_of<DataError>([&, &bytes = text] { decode_image(bytes_of(bytes), "a/x"); });
    EXPECT_NE(message.find("a/x: damaged: 16383 rows x 16383 columns do not fit into a file of " +
                           std::to_string(text.size()) + " bytes"),
              std::string::npos)
        << format << ": " << message;
  }
  // What is large and valid is read: one color of 4,096 x 4,096 pixels.
  const Image plain{4096, 4096, 3, std::vector<uint8_t>(size_t{3} << 24, 7)};
  EXPECT_EQ(decode_image(encode_webp(plain, true), "x"), plain);
}

// ---- GIF ----

std::vector<uint8_t> palette_of(int colors) {
  std::vector<uint8_t> palette;
  for (int i = 0; i < 3 * colors; ++i) palette.push_back(static_cast<uint8_t>(37 * i + 11));
  return palette;
}

Image indices_of(int64_t height, int64_t width, int colors) {
  Image image = patterned(height, width, 1, 5);
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel % colors);
  return image;
}

Image colored(const Image& indices, const std::vector<uint8_t>& palette) {
  Image image{indices.height, indices.width, 3, {}};
  for (const uint8_t index : indices.pixels) {
    for (size_t c = 0; c < 3; ++c) image.pixels.push_back(palette[3 * size_t{index} + c]);
  }
  return image;
}

TEST(Gif, ImagesAreExact) {
  for (const int colors : {2, 16, 256}) {
    for (const bool interlaced : {false, true}) {
      for (const auto& [height, width] : {std::pair{1, 1}, {9, 7}, {40, 33}}) {
        const Image indices = indices_of(height, width, colors);
        const Bytes bytes = encode_gif(indices, palette_of(colors),
                                       {.interlaced = interlaced, .transparent = 1, .images = 2});
        EXPECT_EQ(decode_image(bytes, "x.gif"), colored(indices, palette_of(colors)));
      }
    }
  }
}

TEST(Gif, AnImageSmallerThanItsCanvasIsPlaced) {
  const auto palette = palette_of(4);
  const Image indices = indices_of(3, 2, 4);
  for (const int transparent : {-1, 2}) {
    const Bytes bytes = encode_gif(
        indices, palette,
        {.transparent = transparent, .left = 4, .top = 1, .screen_height = 6, .screen_width = 7});
    Image canvas{6, 7, 1, std::vector<uint8_t>(42, static_cast<uint8_t>(std::max(transparent, 0)))};
    for (size_t y = 0; y < 3; ++y) {
      for (size_t x = 0; x < 2; ++x) canvas.pixels[7 * (y + 1) + x + 4] = indices.pixels[2 * y + x];
    }
    EXPECT_EQ(decode_image(bytes, "x"), colored(canvas, palette));
  }
}

TEST(Gif, DamageGivesADataErrorOrAnImageButNothingWorse) {
  const Bytes good = encode_gif(indices_of(8, 8, 4), palette_of(4));
  expect_truncations_refused(good, good.size() - 1);  // the last byte ends the file
  survivors_of_damage(good);
  survivors_of_damage(encode_gif(indices_of(9, 8, 16), palette_of(16), {.interlaced = true}));
  const std::string message =
      message_of<DataError>([&] { decode_image(std::span(good).first(20), "a.gif"); });
  EXPECT_NE(message.find("a.gif: damaged GIF near byte"), std::string::npos) << message;
}

// ---- BMP ----

struct BmpFile {
  uint32_t bits = 24, compression = 0;
  int32_t height = 2, width = 3;
  std::vector<uint8_t> palette = {};  // RGB
  std::vector<uint32_t> masks = {};
  std::string pixels = {};

  Bytes bytes() const {
    std::string header = little(40, 4) + little(static_cast<uint32_t>(width), 4) +
                         little(static_cast<uint32_t>(height), 4) + little(1, 2) + little(bits, 2) +
                         little(compression, 4) + little(static_cast<uint32_t>(pixels.size()), 4) +
                         little(0, 8) + little(static_cast<uint32_t>(palette.size() / 3), 4) +
                         little(0, 4);
    for (const uint32_t mask : masks) header += little(mask, 4);
    for (size_t i = 0; i < palette.size(); i += 3) {
      for (const size_t c : {2, 1, 0}) header += static_cast<char>(palette[i + c]);
      header += '\0';
    }
    const auto offset = static_cast<uint32_t>(14 + header.size());
    return bytes_of("BM" + little(offset + static_cast<uint32_t>(pixels.size()), 4) + little(0, 4) +
                    little(offset, 4) + header + pixels);
  }
  Image image() const { return decode_image(bytes(), "x.bmp"); }
};

TEST(Bmp, ColorsAreReadFromTheBottomOrTheTop) {
  BmpFile file;
  file.pixels = "abcdefghi...ABCDEFGHI...";
  const std::string down = "cbafedihgCBAFEDIHG", up = "CBAFEDIHGcbafedihg";
  EXPECT_EQ(file.image(), (Image{2, 3, 3, {up.begin(), up.end()}}));
  file.height = -2;
  EXPECT_EQ(file.image(), (Image{2, 3, 3, {down.begin(), down.end()}}));
  file.pixels.resize(21);  // without the padding of the last row
  EXPECT_EQ(file.image(), (Image{2, 3, 3, {down.begin(), down.end()}}));
  file.pixels.resize(20);
  EXPECT_THROW(file.image(), DataError);
  file.bits = 32;
  file.width = 1;
  file.pixels = "abc?ABC?";
  const std::string wide = "cbaCBA";
  EXPECT_EQ(file.image(), (Image{2, 1, 3, {wide.begin(), wide.end()}}));
}

TEST(Bmp, PalettesOfAllSizes) {
  const std::vector<uint8_t> palette = palette_of(4);
  BmpFile file{.bits = 8, .height = 1, .palette = palette, .pixels = {"\3\0\1.", 4}};
  EXPECT_EQ(file.image(), colored({1, 3, 1, {3, 0, 1}}, palette));
  file.bits = 4;
  file.pixels = {"\x30\x10..", 4};
  EXPECT_EQ(file.image(), colored({1, 3, 1, {3, 0, 1}}, palette));
  file.bits = 2;
  file.pixels = {"\xc4...", 4};
  EXPECT_EQ(file.image(), colored({1, 3, 1, {3, 0, 1}}, palette));
  file.bits = 1;
  file.pixels = {"\xa0...", 4};
  EXPECT_EQ(file.image(), colored({1, 3, 1, {1, 0, 1}}, palette));
  file.bits = 8;
  file.pixels = {"\4...", 4};
  const std::string message = message_of<DataError>([&] { file.image(); });
  EXPECT_NE(message.find("color 4 of a palette of 4"), std::string::npos) << message;
}

TEST(Bmp, MasksOfFewerBitsAreRounded) {
  BmpFile file{
      .bits = 16, .height = 1, .width = 2, .pixels = little(0x7fe1, 2) + little(3 << 10, 2)};
  // 31, 31 and 1 of 31; 3 of 31 is 24.68.
  EXPECT_EQ(file.image(), (Image{1, 2, 3, {255, 255, 8, 25, 0, 0}}));
  file.compression = 3;
  file.masks = {0xf800, 0x07e0, 0x001f};
  file.pixels = little(0xf800 | 21 << 5 | 16, 2) + little(0, 2);
  EXPECT_EQ(file.image(), (Image{1, 2, 3, {255, 85, 132, 0, 0, 0}}));
  file.bits = 32;
  file.width = 1;
  file.masks = {0x3ff00000, 0x000ffc00, 0x000003ff};
  file.pixels = little(1023U << 20 | 512U << 10 | 1, 4);
  EXPECT_EQ(file.image(), (Image{1, 1, 3, {255, 128, 0}}));
  file.masks[1] = 0x000f0f00;
  EXPECT_NE(message_of<DataError>([&] { file.image(); }).find("a mask with gaps"),
            std::string::npos);
}

TEST(Bmp, RunsOfAllKinds) {
  const auto palette = palette_of(16);
  BmpFile file{.bits = 8, .compression = 1, .height = 3, .width = 5, .palette = palette};
  // Bottom row: a run of 3, two pixels as they are; then a jump; the top row stays empty.
  file.pixels = {
      "\3\7\0\3\1\2\3\0\0\0"
      "\0\2\1\0\2\5\0\1",
      18};
  const Image indices{3, 5, 1, {0, 0, 0, 0, 0, 0, 5, 5, 0, 0, 7, 7, 7, 1, 2}};
  EXPECT_EQ(file.image(), colored(indices, palette));
  file.bits = 4;
  file.compression = 2;
  file.height = 1;
  file.pixels = {"\3\x12\0\4\x34\x50\0\1", 8};
  EXPECT_EQ(file.image(), colored({1, 5, 1, {1, 2, 1, 3, 4}}, palette));
  // Without an end, and with pixels beyond the last row.
  file.pixels = {"\5\x12", 2};
  EXPECT_EQ(file.image(), colored({1, 5, 1, {1, 2, 1, 2, 1}}, palette));
  file.pixels = {"\5\x12\0\0\1\1", 6};
  EXPECT_THROW(file.image(), DataError);
  file.pixels = {"\3\x12", 2};
  EXPECT_THROW(file.image(), DataError);
}

TEST(Bmp, DamageGivesADataErrorOrAnImageButNothingWorse) {
  BmpFile file{.pixels = std::string(24, 'x')};
  expect_truncations_refused(file.bytes(), file.bytes().size() - 3);
  survivors_of_damage(file.bytes());
  BmpFile runs{.bits = 8, .compression = 1, .height = 3, .width = 5, .palette = palette_of(16)};
  runs.pixels = {
      "\3\7\0\3\1\2\3\0\0\0"
      "\0\2\1\0\2\5\0\1",
      18};
  expect_truncations_refused(runs.bytes());
  survivors_of_damage(runs.bytes());
  BmpFile huge{.bits = 8, .compression = 1, .height = 16384, .width = 16384, .palette = {1, 2, 3}};
  EXPECT_THROW(huge.image(), DataError);
  BmpFile jpeg{.compression = 4};
  const std::string message = message_of<DataError>([&] { jpeg.image(); });
  EXPECT_NE(message.find("not supported"), std::string::npos) << message;
}

// ---- Formats ----

TEST(ImageFormat, IsRecognizedByContent) {
  const auto name_of = [](const Bytes& bytes) {
    return std::string(
        recognize_image(std::span(bytes).first(std::min(bytes.size(), image_format_bytes))).name);
  };
  const Image image = patterned(4, 4, 3, 1);
  EXPECT_EQ(name_of(encode_jpeg(image)), "JPEG");
  EXPECT_EQ(name_of(encode_png(image)), "PNG");
  EXPECT_EQ(name_of(encode_webp(image, true)), "WebP");
  EXPECT_EQ(name_of(encode_gif(indices_of(4, 4, 2), palette_of(2))), "GIF");
  EXPECT_EQ(name_of(BmpFile{}.bytes()), "BMP");
  for (const char* pnm : {"P5 1 1 255\nx", "P4\n# made by hand\n8 1\nx", "P6\t1\r2 255 xxxxxx"}) {
    EXPECT_EQ(name_of(bytes_of(pnm)), "PNM") << pnm;
  }
  EXPECT_EQ(name_of(bytes_of("P5 #" + std::string(200, 'c'))), "PNM");
  for (const char* text :
       {"", "P", "P5", "P5 results", "P5 1 results", "P6 2 3", "BM", "BM of 1998", "GIF",
        "RIFF....WAVE", "....ftypisom", "text", "II", "<html>"}) {
    EXPECT_EQ(name_of(bytes_of(text)), "") << text;
  }
  using namespace std::string_literals;
  for (const auto& [bytes, name] : {std::pair{"II*\0...."s, "TIFF"},
                                    {"MM\0*...."s, "TIFF"},
                                    {"\0\0\0\x18"
                                     "ftypheic"s,
                                     "HEIC"},
                                    {"\0\0\0\x18"
                                     "ftypavif"s,
                                     "AVIF"},
                                    {"\xff\x0a...."s, "JPEG XL"},
                                    {"8BPS\0\1"s, "PSD"}}) {
    EXPECT_EQ(name_of(bytes_of(bytes)), name);
    EXPECT_FALSE(recognize_image(bytes_of(bytes)).readable());
    const std::string message =
        message_of<DataError>([&, &b = bytes] { decode_image(bytes_of(b), "a.jpg"); });
    EXPECT_EQ(message, "[image] a.jpg: the format " + std::string(name) + " is not supported");
  }
}

// EXIF with one entry, the orientation.
std::string exif_of(int orientation, bool big_endian) {
  using namespace std::string_literals;
  std::string text = big_endian ? "MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0"s
                                : "II*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0"s;
  text += static_cast<char>(orientation);
  return text + std::string(big_endian ? 6 : 7, '\0');
}

TEST(ImageFormat, OrientationsAreFound) {
  using namespace std::string_literals;
  const Image image = patterned(4, 4, 3, 1);
  const Bytes jpeg = encode_jpeg(image), png = encode_png(image), webp = encode_webp(image, true);
  const auto inserted = [](const Bytes& file, size_t at, const std::string& more) {
    Bytes bytes = file;
    const Bytes added = bytes_of(more);
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), added.begin(), added.end());
    return bytes;
  };
  const auto big = [](size_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
    return text;
  };
  for (const bool big_endian : {false, true}) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const std::string exif = exif_of(orientation, big_endian);
      const std::string segment = "\xff\xe1" + big(exif.size() + 8, 2) + "Exif\0\0"s + exif;
      const Bytes oriented = inserted(jpeg, 2, segment);
      EXPECT_EQ(exif_orientation(oriented), orientation);
      EXPECT_EQ(decode_image(oriented, "x"), decode_image(jpeg, "x"));  // it is ignored
      EXPECT_EQ(exif_orientation(inserted(png, 33, big(exif.size(), 4) + "eXIf" + exif + "....")),
                orientation);
      EXPECT_EQ(
          exif_orientation(inserted(webp, webp.size(),
                                    "EXIF" + little(static_cast<uint32_t>(exif.size()), 4) + exif)),
          orientation);
      for (size_t n = 0; n < oriented.size(); ++n) {
        const int cut = exif_orientation(std::span(oriented).first(n));
        EXPECT_TRUE(cut == 1 || cut == orientation);
      }
    }
  }
  for (const Bytes& plain : {jpeg, png, webp, Bytes()}) EXPECT_EQ(exif_orientation(plain), 1);
  EXPECT_EQ(exif_orientation(inserted(jpeg, 2,
                                      "\xff\xe1\0\x22"
                                      "Exif\0\0"s +
                                          exif_of(9, true))),
            1);
}

}  // namespace
}  // namespace lockstep
