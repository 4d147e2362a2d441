// JPEG files that are decoded at a smaller scale.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/encode.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

// A smooth image, as photographs are.
Image waves(int64_t height, int64_t width, int64_t channels) {
  Image image{height, width, channels, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        const double v = std::sin(0.02 * static_cast<double>(x * (c + 1))) +
                         std::cos(0.03 * static_cast<double>(y + 7 * c));
        image.pixels.push_back(static_cast<uint8_t>(127.5 + 60 * v));
      }
    }
  }
  return image;
}

double distance_of(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels.at(i));
  return sum / static_cast<double>(a.pixels.size());
}

TEST(ScaledDecoding, TakesTheSmallestScaleThatSuffices) {
  const std::vector<std::byte> file = testing::encode_jpeg(waves(301, 400, 3));
  const auto size_for = [&](int64_t height, int64_t width) {
    const Image image = decode_image(file, "waves.jpg", {height, width});
    EXPECT_EQ(image.channels, 3);
    EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.height * image.width * 3));
    return Size2d{image.height, image.width};
  };
  EXPECT_EQ(size_for(0, 0), (Size2d{301, 400}));
  EXPECT_EQ(size_for(1, 1), (Size2d{38, 50}));
  EXPECT_EQ(size_for(38, 50), (Size2d{38, 50}));  // rounded up
  EXPECT_EQ(size_for(39, 1), (Size2d{76, 100}));
  EXPECT_EQ(size_for(1, 51), (Size2d{76, 100}));
  EXPECT_EQ(size_for(76, 101), (Size2d{151, 200}));
  EXPECT_EQ(size_for(151, 200), (Size2d{151, 200}));
  EXPECT_EQ(size_for(152, 0), (Size2d{301, 400}));
  EXPECT_EQ(size_for(5000, 5000), (Size2d{301, 400}));
}

TEST(ScaledDecoding, GivesTheImageInSmall) {
  for (const int64_t channels : {1, 3, 4}) {
    for (const bool progressive : {false, true}) {
      for (const int subsampling : {1, 2}) {
        const std::vector<std::byte> file = testing::encode_jpeg(
            waves(320, 256, channels),
            {.progressive = progressive, .cmyk = channels == 4, .subsampling = subsampling});
        const Image whole = decode_image(file, "waves.jpg");
        EXPECT_EQ(decode_image(file, "waves.jpg", {320, 256}), whole);
        for (const int64_t part : {2, 4, 8}) {
          const Image small = decode_image(file, "waves.jpg", {320 / part, 256 / part});
          ASSERT_EQ(small.height, 320 / part);
          EXPECT_EQ(small.channels, whole.channels);
          EXPECT_LT(distance_of(small, resize(whole, small.height, small.width)), 3)
              << channels << ", 1/" << part;
        }
      }
    }
  }
}

TEST(ScaledDecoding, ChangesNoOtherFormatAndNoLimit) {
  const Image image = waves(40, 60, 3);
  const std::vector<std::byte> png = encode_png(image);
  EXPECT_EQ(decode_image(png, "waves.png", {1, 1}), image);
  std::vector<std::byte> cut = testing::encode_jpeg(image);
  cut.resize(cut.size() / 2);
  EXPECT_THROW(decode_image(cut, "cut.jpg", {1, 1}), DataError);
}

TEST(ScaledDecoding, FoldersHaveOtherContents) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path + "/a");
  const std::vector<std::byte> file = testing::encode_jpeg(waves(200, 160, 3));
  std::ofstream(folder.path + "/a/1.jpg", std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const DatastorePtr plain = image_folder(folder.path);
  const DatastorePtr scaled = image_folder(folder.path, {.least = {50, 40}});
  const DatastorePtr other = image_folder(folder.path, {.least = {51, 40}});
  const Example example = scaled->read(0);
  EXPECT_EQ(std::get<Image>(example.inputs[0]).height, 50);
  EXPECT_EQ(std::get<Image>(other->read(0).inputs[0]).height, 100);
  EXPECT_EQ(std::get<Image>(plain->read(0).inputs[0]).height, 200);
  EXPECT_EQ(scaled->content_digest(0), example.content);
  EXPECT_NE(scaled->content_digest(0), plain->content_digest(0));
  EXPECT_NE(scaled->content_digest(0), other->content_digest(0));
}

// Squares of 16 pixels, which the blocks of JPEG do not divide: 40 where the label is 0, else 220.
Image squares(int64_t height, int64_t width, uint8_t low, uint8_t high) {
  Image image{height, width, 1, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      image.pixels.push_back((y / 16 + x / 16) % 2 == 0 ? low : high);
    }
  }
  return image;
}

// The same with an EXIF orientation.
std::vector<std::byte> turned_jpeg(const Image& image, int orientation) {
  std::string exif(
      "\xff\xe1\0\x22"
      "Exif\0\0MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0",
      36);
  exif[29] = static_cast<char>(orientation);
  std::vector<std::byte> jpeg = testing::encode_jpeg(image);
  const auto* const begin = reinterpret_cast<const std::byte*>(exif.data());
  jpeg.insert(jpeg.begin() + 2, begin, begin + exif.size());
  return jpeg;
}

// Label images are those of the whole image, and are reduced with it: every pixel agrees, at the
// edges too, whose blocks are not whole, and after turning.
TEST(ScaledDecoding, ReducesLabelImagesAlike) {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{203, 301}, {64, 96}, {65, 33}}) {
    for (const int64_t divisor : {2, 4, 8}) {
      for (int orientation = 1; orientation <= 8; ++orientation) {
        SCOPED_TRACE(::testing::Message() << height << " x " << width << ", 1/" << divisor
                                          << ", orientation " << orientation);
        const lockstep::testing::TemporaryFolder folder;
        folder.write("images/a.jpg", turned_jpeg(squares(height, width, 40, 220), orientation));
        folder.write("masks/a.png", encode_png(upright(squares(height, width, 0, 1), orientation)));
        const int64_t side = (std::min(height, width) + divisor - 1) / divisor;
        const DatastorePtr images = image_folder(
            folder.path + "/images", {.labeled = false, .upright = true, .least = {side, side}});
        const DatastorePtr masks = image_folder(
            folder.path + "/masks",
            {.labeled = false, .pixel_classes = PixelClasses{.names = {"low", "high"}}});
        const Example example = with_targets(images, masks)->read(0);
        const Image& image = std::get<Image>(example.inputs[0]);
        const Image& labels = std::get<Image>(example.target);
        ASSERT_EQ(image.scale.divisor, divisor);
        ASSERT_EQ((Size2d{labels.height, labels.width}), (Size2d{image.height, image.width}));
        for (size_t p = 0; p < labels.pixels.size(); ++p) {
          ASSERT_EQ(labels.pixels[p], image.pixels[p] > 128 ? 1 : 0) << p << ", " << image.width;
        }
        const Example resized_alike = resized(with_targets(images, masks), 17, 12)->read(0);
        EXPECT_EQ(std::get<Image>(resized_alike.target).height, 17);
        // The stored size is that of the whole image, not of the decoded one.
        folder.write("masks/a.png", encode_png(labels));
        const std::string message =
            lockstep::testing::message_of<DataError>([&] { with_targets(images, masks)->read(0); });
        const bool exchanged = orientation >= 5;
        lockstep::testing::expect_says(
            message, "has " + std::to_string(exchanged ? width : height) + " x " +
                         std::to_string(exchanged ? height : width) + " pixels, but its label");
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
