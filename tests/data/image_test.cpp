// JPEG and PNG: correct pixels from valid files, and only DataError from invalid ones.
#include "lockstep/data/images/image.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "tests/data/damage.h"
#include "tests/data/encode.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::encode_jpeg;
using testing::expect_truncations_refused;
using testing::JpegOptions;
using testing::message_of;
using testing::patterned;
using testing::PngOptions;
using testing::raw_png;
using testing::survivors_of_damage;
using Bytes = std::vector<std::byte>;

// A smooth image, which JPEG preserves well.
Image smooth(int64_t height, int64_t width, int64_t channels) {
  Image image{height, width, channels, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        image.pixels.push_back(static_cast<uint8_t>((40 + 3 * y + 2 * x + 20 * c) % 256));
      }
    }
  }
  return image;
}

Bytes palette_png() {
  PngOptions options{.bits = 2, .type = PNG_COLOR_TYPE_PALETTE};
  options.palette = {{0, 0, 0}, {255, 0, 0}, {10, 20, 30}, {200, 100, 50}};
  options.palette_alpha = {0, 255, 128};
  return raw_png(2, 4, {{0b00011011}, {0b11100100}}, options);
}

TEST(Jpeg, RoundTripIsCloseForGrayAndColorAndOddSizes) {
  for (const int64_t channels : {1, 3}) {
    for (const bool progressive : {false, true}) {
      for (const int subsampling : {1, 2}) {
        const Image image = smooth(17, 29, channels);
        const Image back =
            decode_image(encode_jpeg(image, {.quality = 98,
                                             .progressive = progressive,
                                             .subsampling = channels == 1 ? 1 : subsampling}),
                         "x.jpg");
        ASSERT_EQ(back.height, 17);
        ASSERT_EQ(back.width, 29);
        ASSERT_EQ(back.channels, channels);
        double error = 0;
        for (size_t i = 0; i < image.pixels.size(); ++i) {
          error += std::abs(image.pixels[i] - back.pixels[i]);
        }
        EXPECT_LT(error / static_cast<double>(image.pixels.size()), 2.0);
      }
    }
  }
}

TEST(Jpeg, ProgressiveAndSequentialFilesOfTheSameCoefficientsGiveTheSamePixels) {
  const Image image = patterned(24, 24, 3, 5);
  EXPECT_EQ(decode_image(encode_jpeg(image, {.progressive = false}), "a"),
            decode_image(encode_jpeg(image, {.progressive = true}), "b"));
}

TEST(Jpeg, EveryTruncationIsRefused) {
  expect_truncations_refused(encode_jpeg(patterned(16, 16, 3, 1)));
  expect_truncations_refused(encode_jpeg(patterned(9, 9, 1, 1), {.subsampling = 1}));
  expect_truncations_refused(encode_jpeg(patterned(16, 16, 3, 1), {.progressive = true}));
}

TEST(Jpeg, DamageGivesADataErrorOrAnImageButNothingWorse) {
  survivors_of_damage(encode_jpeg(patterned(8, 8, 3, 2), {.quality = 50}));
  survivors_of_damage(encode_jpeg(patterned(8, 8, 1, 2), {.progressive = true, .subsampling = 1}));
}

TEST(Jpeg, ErrorsNameTheFileAndThePlace) {
  Bytes bytes = encode_jpeg(patterned(16, 16, 3, 1));
  bytes.resize(bytes.size() / 2);
  const std::string message = message_of<DataError>([&] { decode_image(bytes, "cats/7.jpg"); });
  EXPECT_NE(message.find("cats/7.jpg"), std::string::npos) << message;
  EXPECT_NE(message.find("byte " + std::to_string(bytes.size())), std::string::npos) << message;
}

TEST(Jpeg, FourInksBecomeColor) {
  // Even areas survive JPEG except for rounding. Stored as Adobe does: 255 is no ink.
  struct Case {
    std::vector<uint8_t> inks;
    std::vector<int> color;
  };
  for (const Case& c :
       {Case{{255, 255, 255, 255}, {255, 255, 255}}, Case{{255, 255, 255, 0}, {0, 0, 0}},
        Case{{0, 255, 255, 255}, {0, 255, 255}}, Case{{200, 100, 50, 128}, {100, 50, 25}}}) {
    for (const bool ycck : {false, true}) {
      Image inks{5, 9, 4, {}};
      for (int i = 0; i < 45; ++i) {
        inks.pixels.insert(inks.pixels.end(), c.inks.begin(), c.inks.end());
      }
      const JpegOptions options{.quality = 100, .cmyk = true, .subsampling = 1, .ycck = ycck};
      const Image image = decode_image(encode_jpeg(inks, options), "x.jpg");
      ASSERT_EQ(image.height, 5);
      ASSERT_EQ(image.width, 9);
      ASSERT_EQ(image.channels, 3);
      ASSERT_EQ(image.pixels.size(), 135u);
      for (size_t i = 0; i < image.pixels.size(); ++i) {
        ASSERT_NEAR(image.pixels[i], c.color[i % 3], ycck ? 2 : 1) << ycck;
      }
    }
  }
  const JpegOptions options{.cmyk = true, .subsampling = 1};
  expect_truncations_refused(encode_jpeg(patterned(8, 8, 4, 1), options));
  survivors_of_damage(encode_jpeg(patterned(8, 8, 4, 1), options));
}

TEST(Jpeg, InksOfEveryBrightnessAreMultipliedByBlack) {
  // Inks of every brightness, with black of every brightness.
  const Image inks = patterned(16, 16, 4, 8);
  const Bytes bytes = encode_jpeg(inks, {.quality = 100, .cmyk = true, .subsampling = 1});
  const Image image = decode_image(bytes, "x.jpg");
  for (size_t i = 0; i < 256; ++i) {
    for (size_t c = 0; c < 3; ++c) {
      const double exact = inks.pixels[4 * i + c] * inks.pixels[4 * i + 3] / 255.0;
      EXPECT_NEAR(image.pixels[3 * i + c], exact, 4.0);  // the DCT's own rounding
    }
  }
}

TEST(Jpeg, AnImageBeyondTheLimitIsRefusedBeforeItsPixelsAreMade) {
  Bytes bytes = encode_jpeg(patterned(8, 8, 1, 1), {.subsampling = 1});
  for (size_t i = 0; i + 8 < bytes.size(); ++i) {  // the frame header: ff c0, length, 8, h, w
    if (bytes[i] == std::byte{0xff} && bytes[i + 1] == std::byte{0xc0}) {
      bytes[i + 5] = bytes[i + 7] = std::byte{0xf0};
    }
  }
  const std::string message = message_of<DataError>([&] { decode_image(bytes, "x"); });
  EXPECT_NE(message.find("too large"), std::string::npos) << message;
}

TEST(Jpeg, AHeaderAloneAllocatesNoLargeImage) {
  Bytes bytes = encode_jpeg(patterned(8, 8, 1, 1));
  for (size_t i = 0; i + 8 < bytes.size(); ++i) {
    if (bytes[i] == std::byte{0xff} && bytes[i + 1] == std::byte{0xc0}) {
      bytes[i + 5] = bytes[i + 7] = std::byte{0x3f};
    }
  }
  const std::string message = message_of<DataError>([&] { decode_image(bytes, "x"); });
  EXPECT_NE(message.find("do not fit into a file of"), std::string::npos) << message;
}

// The place behind the first segment of the header.
size_t between_segments(const Bytes& jpeg) {
  return 4 + (std::to_integer<size_t>(jpeg[4]) << 8 | std::to_integer<size_t>(jpeg[5]));
}

TEST(Jpeg, WhatNoPixelDependsOnIsNotDamage) {
  const Bytes good = encode_jpeg(patterned(16, 16, 3, 1));
  const Image image = decode_image(good, "x");
  const auto with = [&](size_t at, std::vector<uint8_t> more) {
    Bytes bytes = good;
    for (size_t i = 0; i < more.size(); ++i) {
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at + i), std::byte{more[i]});
    }
    return bytes;
  };
  EXPECT_EQ(decode_image(with(between_segments(good), {0x12, 0x34, 0x00}), "x"), image);
  EXPECT_EQ(decode_image(with(good.size(), {'b', 'e', 'h', 'i', 'n', 'd'}), "x"), image);
  Bytes version = good;
  ASSERT_EQ(version[6], std::byte{'J'});
  version[11] = std::byte{9};  // the major version of JFIF
  EXPECT_EQ(decode_image(version, "x"), image);
  // Between the pixels and the end, further bytes are the trace of damaged pixels.
  EXPECT_THROW(decode_image(with(good.size() - 2, {0x12, 0x34}), "x"), DataError);
}

TEST(Jpeg, OtherKindsAreNotSupportedRatherThanDamaged) {
  Bytes bytes = encode_jpeg(patterned(16, 16, 3, 1));
  for (size_t i = 0; i + 5 < bytes.size(); ++i) {
    if (bytes[i] != std::byte{0xff} || bytes[i + 1] != std::byte{0xc0}) continue;
    Bytes deep = bytes, lossless = bytes;
    deep[i + 1] = std::byte{0xc1};
    deep[i + 4] = std::byte{12};
    lossless[i + 1] = std::byte{0xc3};
    for (const Bytes& other : {deep, lossless}) {
      const std::string message = message_of<DataError>([&] { decode_image(other, "a.jpg"); });
      EXPECT_NE(message.find("not supported"), std::string::npos) << message;
      EXPECT_EQ(message.find("damaged"), std::string::npos) << message;
    }
    return;
  }
  FAIL() << "no frame header";
}

// A chunk of a PNG, with its checksum.
Bytes png_chunk(const std::string& type, const std::string& contents) {
  std::string bytes;
  const auto number = [&](uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  };
  number(static_cast<uint32_t>(contents.size()));
  bytes += type + contents;
  uint32_t crc = 0xffffffff;
  for (const char c : type + contents) {
    crc ^= static_cast<uint8_t>(c);
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (0xedb88320u & (0 - (crc & 1)));
  }
  number(~crc);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

TEST(Png, WhatNoPixelDependsOnIsNotDamage) {
  const auto with = [](const Bytes& png, size_t at, const Bytes& more) {
    Bytes bytes = png;
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
    return bytes;
  };
  constexpr size_t behind_header = 33;
  const Image gray = patterned(6, 5, 1, 1);
  const Bytes good = encode_png(gray);
  for (const char* transparent : {"\x12\x34", "\x12", "\x12\x34\x56\x78"}) {
    const Bytes bytes = with(good, behind_header, png_chunk("tRNS", transparent));
    EXPECT_EQ(decode_image(bytes, "x"), gray);
  }
  const Bytes indexed = palette_png();
  PngOptions opaque{.bits = 2, .type = PNG_COLOR_TYPE_PALETTE};
  opaque.palette = {{0, 0, 0}, {255, 0, 0}, {10, 20, 30}, {200, 100, 50}};
  const Bytes plain = raw_png(2, 4, {{0b00011011}, {0b11100100}}, opaque);
  EXPECT_EQ(decode_image(plain, "x"), decode_image(indexed, "x"));
  EXPECT_EQ(decode_image(with(plain, behind_header, png_chunk("tRNS", std::string(40, 'x'))), "x"),
            decode_image(plain, "x"));
  // Compressed data behind the pixels, and anything behind the end.
  const size_t end = good.size() - 12;
  EXPECT_EQ(decode_image(with(good, end, png_chunk("IDAT", "more")), "x"), gray);
  EXPECT_EQ(decode_image(with(good, good.size(), {std::byte{1}, std::byte{2}}), "x"), gray);
}

TEST(Png, RoundTripIsExact) {
  for (const int64_t channels : {1, 3}) {
    const Image image = patterned(13, 7, channels, 3);
    EXPECT_EQ(decode_image(encode_png(image), "x"), image);
  }
  const Image one = patterned(1, 1, 1, 9);
  EXPECT_EQ(decode_image(encode_png(one), "x"), one);
}

TEST(Png, PalettesAreExpandedAndTheirTransparencyStripped) {
  const Image image = decode_image(palette_png(), "x");
  const std::vector<uint8_t> expected = {0,   0,   0,  255, 0,  0,  10,  20, 30, 200, 100, 50,
                                         200, 100, 50, 10,  20, 30, 255, 0,  0,  0,   0,   0};
  EXPECT_EQ(image, (Image{2, 4, 3, expected}));
}

TEST(Png, LowBitDepthsAreExpanded) {
  const Image one =
      decode_image(raw_png(1, 8, {{0b10110001}}, {.bits = 1, .type = PNG_COLOR_TYPE_GRAY}), "x");
  EXPECT_EQ(one, (Image{1, 8, 1, {255, 0, 255, 255, 0, 0, 0, 255}}));
  const Image four =
      decode_image(raw_png(1, 3, {{0x0f, 0x70}}, {.bits = 4, .type = PNG_COLOR_TYPE_GRAY}), "x");
  EXPECT_EQ(four, (Image{1, 3, 1, {0, 255, 119}}));
}

TEST(Png, SixteenBitsAreRoundedToEight) {
  std::vector<std::vector<uint8_t>> rows(256);
  std::vector<uint8_t> expected;
  for (uint32_t v = 0; v < 65536; ++v) {
    rows[v >> 8].push_back(static_cast<uint8_t>(v >> 8));
    rows[v >> 8].push_back(static_cast<uint8_t>(v & 255));
    expected.push_back(static_cast<uint8_t>((v * 255 + 32767) / 65535));  // nearest
  }
  for (const bool interlaced : {false, true}) {
    EXPECT_EQ(
        decode_image(raw_png(256, 256, rows,
                             {.bits = 16, .type = PNG_COLOR_TYPE_GRAY, .interlaced = interlaced}),
                     "x"),
        (Image{256, 256, 1, expected}));
  }
  EXPECT_EQ(decode_image(raw_png(1, 1, {{0, 128, 255, 255, 1, 0, 0, 0}},
                                 {.bits = 16, .type = PNG_COLOR_TYPE_RGB_ALPHA}),
                         "x"),
            (Image{1, 1, 3, {0, 255, 1}}));
}

TEST(Png, PalettesOfEveryDepthAndInterlacedAreTheSame) {
  for (const int bits : {1, 2, 4, 8}) {
    PngOptions options{.bits = bits, .type = PNG_COLOR_TYPE_PALETTE};
    const uint32_t colors = 1u << bits;
    for (uint32_t i = 0; i < colors; ++i) {
      const auto v = static_cast<png_byte>(i);
      options.palette.push_back({v, static_cast<png_byte>(255 - v), static_cast<png_byte>(7 * v)});
    }
    constexpr uint32_t height = 11, width = 13;
    std::vector<std::vector<uint8_t>> rows(height, std::vector<uint8_t>((width * bits + 7) / 8));
    Image expected{height, width, 3, {}};
    for (uint32_t y = 0; y < height; ++y) {
      for (uint32_t x = 0; x < width; ++x) {
        const uint32_t index = (5 * y + 3 * x) % colors;
        const uint32_t bit = x * static_cast<uint32_t>(bits);
        rows[y][bit / 8] |=
            static_cast<uint8_t>(index << (8 - static_cast<uint32_t>(bits) - bit % 8));
        const png_color& color = options.palette[index];
        for (const png_byte part : {color.red, color.green, color.blue}) {
          expected.pixels.push_back(part);
        }
      }
    }
    for (const bool interlaced : {false, true}) {
      options.interlaced = interlaced;
      options.palette_alpha.clear();
      EXPECT_EQ(decode_image(raw_png(height, width, rows, options), "x"), expected) << bits;
      options.palette_alpha = {0, 128};
      EXPECT_EQ(decode_image(raw_png(height, width, rows, options), "x"), expected) << bits;
    }
  }
}

TEST(Png, AColorBeyondThePaletteIsRefused) {
  PngOptions options{.bits = 2, .type = PNG_COLOR_TYPE_PALETTE};
  options.palette = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  const Image good = decode_image(raw_png(1, 4, {{0b00011010}}, options), "x");
  EXPECT_EQ(good.pixels, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9}));
  const Bytes bad = raw_png(1, 4, {{0b00011011}}, options);
  const std::string message = message_of<DataError>([&] { decode_image(bad, "a/x.png"); });
  EXPECT_NE(message.find("a/x.png: damaged PNG: color 3 of a palette of 3"), std::string::npos)
      << message;
}

TEST(Png, AnImageBeyondTheLimitIsRefusedBeforeItsPixelsAreMade) {
  // A small file whose header claims 100,000 columns.
  const std::vector<std::vector<uint8_t>> rows{std::vector<uint8_t>(12'500)};
  const Bytes bytes =
      raw_png(1, 100'000, rows, {.bits = 1, .type = PNG_COLOR_TYPE_GRAY, .interlaced = false});
  const std::string message = message_of<DataError>([&] { decode_image(bytes, "a/x.png"); });
  EXPECT_NE(message.find("a/x.png: too large: 1 rows x 100000 columns"), std::string::npos)
      << message;
}

TEST(Png, AHeaderAloneAllocatesNoLargeImage) {
  Bytes bytes = raw_png(1, 8, {{0}}, {.bits = 1, .type = PNG_COLOR_TYPE_GRAY});
  const std::string size("\0\0\x3f\xff\0\0\x3f\xff\x01\0\0\0\0", 13);
  const Bytes header = png_chunk("IHDR", size);
  std::copy(header.begin(), header.end(), bytes.begin() + 8);
  const std::string message = message_of<DataError>([&] { decode_image(bytes, "x"); });
  EXPECT_NE(message.find("16383 rows x 16383 columns do not fit into a file of"), std::string::npos)
      << message;
  // The rows of one color need the fewest bytes.
  const Image plain{4097, 4096, 1, std::vector<uint8_t>(size_t{4097} << 12, 7)};
  EXPECT_EQ(decode_image(encode_png(plain), "x"), plain);
}

TEST(Png, AlphaIsStripped) {
  EXPECT_EQ(
      decode_image(raw_png(1, 2, {{1, 2, 3, 0, 4, 5, 6, 128}}, {.type = PNG_COLOR_TYPE_RGB_ALPHA}),
                   "x"),
      (Image{1, 2, 3, {1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(decode_image(raw_png(1, 2, {{9, 0, 7, 255}}, {.type = PNG_COLOR_TYPE_GRAY_ALPHA}), "x"),
            (Image{1, 2, 1, {9, 7}}));
}

TEST(Png, InterlacedFilesAndDescriptiveChunksGiveTheSamePixels) {
  const Image image = patterned(11, 9, 1, 4);
  std::vector<std::vector<uint8_t>> rows;
  for (int y = 0; y < 11; ++y) {
    rows.emplace_back(image.pixels.begin() + y * 9, image.pixels.begin() + (y + 1) * 9);
  }
  const PngOptions options{.type = PNG_COLOR_TYPE_GRAY, .interlaced = true, .text = true};
  EXPECT_EQ(decode_image(raw_png(11, 9, rows, options), "x"), image);
}

TEST(Png, EveryTruncationAndEveryFlippedBitIsRefused) {
  const Bytes gray = encode_png(patterned(6, 5, 1, 1));
  expect_truncations_refused(gray);
  EXPECT_EQ(survivors_of_damage(gray), 0);  // checksums cover everything
  expect_truncations_refused(palette_png());
  EXPECT_EQ(survivors_of_damage(palette_png()), 0);
}

TEST(Png, RightChecksumsOverTooLittleDataAreRefused) {
  // Claims 6 rows but holds 5: IHDR is rewritten with a valid checksum.
  Bytes bytes = encode_png(patterned(5, 5, 1, 1));
  bytes[23] = std::byte{6};
  uint32_t crc = 0xffffffff;
  for (size_t i = 12; i < 29; ++i) {
    crc ^= std::to_integer<uint32_t>(bytes[i]);
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (0xedb88320u & (0 - (crc & 1)));
  }
  crc = ~crc;
  for (size_t k = 0; k < 4; ++k) bytes[29 + k] = static_cast<std::byte>(crc >> (24 - 8 * k));
  const std::string message = message_of<DataError>([&] { decode_image(bytes, "x.png"); });
  EXPECT_NE(message.find("x.png: damaged PNG near byte"), std::string::npos) << message;
}

TEST(Image, OtherFilesAreRefusedByContentAndNotByName) {
  EXPECT_NE(
      message_of<DataError>([] { decode_image({}, "a.png"); }).find("a.png: the file is empty"),
      std::string::npos);
  const Bytes text = {std::byte{'G'}, std::byte{'I'}, std::byte{'F'}};
  const std::string message = message_of<DataError>([&] { decode_image(text, "a.png"); });
  EXPECT_NE(message.find("not an image of a known format"), std::string::npos) << message;
  EXPECT_NE(message.find("47 49 46"), std::string::npos) << message;
  const Image image = patterned(3, 3, 3, 1);
  EXPECT_EQ(decode_image(encode_png(image), "wrongly_named.jpg"), image);
}

TEST(Image, ChannelsAreConvertedByBt601) {
  const Image color{1, 3, 3, {255, 255, 255, 0, 0, 0, 200, 100, 50}};
  EXPECT_EQ(convert_channels(color, 1), (Image{1, 3, 1, {255, 0, 124}}));  // 124.2
  const Image gray{1, 2, 1, {7, 250}};
  EXPECT_EQ(convert_channels(gray, 3), (Image{1, 2, 3, {7, 7, 7, 250, 250, 250}}));
  EXPECT_EQ(convert_channels(convert_channels(gray, 3), 1), gray);
  EXPECT_EQ(convert_channels(gray, 1), gray);
  EXPECT_THROW(convert_channels(gray, 2), InvalidArgument);
}

TEST(Image, OnlyConsistentImagesAreWritten) {
  EXPECT_THROW(encode_png(Image{}), InvalidArgument);
  EXPECT_THROW(encode_png(Image{2, 2, 1, {1, 2, 3}}), InvalidArgument);
  EXPECT_THROW(encode_png(patterned(2, 2, 2, 1)), InvalidArgument);
}

TEST(Image, UprightImagesAreTurnedAsExifSays) {
  // Where the corners 1 2 / 3 4 of the stored image are to be seen.
  const Image stored{2, 3, 1, {1, 9, 2, 3, 8, 4}};
  const auto corners = [](const Image& image) {
    const auto at = [&](int64_t y, int64_t x) {
      return image.pixels[static_cast<size_t>(y * image.width + x)];
    };
    return std::vector<uint8_t>{at(0, 0), at(0, image.width - 1), at(image.height - 1, 0),
                                at(image.height - 1, image.width - 1)};
  };
  const std::vector<std::vector<uint8_t>> seen{{1, 2, 3, 4}, {2, 1, 4, 3}, {4, 3, 2, 1},
                                               {3, 4, 1, 2}, {1, 3, 2, 4}, {3, 1, 4, 2},
                                               {4, 2, 3, 1}, {2, 4, 1, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image image = upright(stored, orientation);
    EXPECT_EQ(image.height, orientation < 5 ? 2 : 3);
    EXPECT_EQ(image.width, orientation < 5 ? 3 : 2);
    EXPECT_EQ(corners(image), seen[static_cast<size_t>(orientation - 1)]) << orientation;
    // The inverse: quarter turns undo each other, all others themselves.
    const int back = orientation == 6 ? 8 : orientation == 8 ? 6 : orientation;
    for (const auto& [height, width, channels] :
         {std::array<int64_t, 3>{1, 1, 1}, {1, 7, 3}, {31, 18, 3}}) {
      const Image other = patterned(height, width, channels, 2);
      EXPECT_EQ(upright(upright(other, orientation), back), other);
    }
  }
  for (const int orientation : {0, 9, -1}) {
    EXPECT_THROW(upright(stored, orientation), InvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep
