#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::MemoryStore;
using testing::patterned;

Image line(std::vector<uint8_t> pixels) {
  return {1, static_cast<int64_t>(pixels.size()), 1, std::move(pixels)};
}

TEST(Resize, TheSameSizeIsTheSameImage) {
  const Image image = patterned(7, 5, 3, 1);
  EXPECT_EQ(resize(image, 7, 5), image);
}

TEST(Resize, InterpolatesBetweenCentersByHand) {
  // Centers of four pixels over two: -0.25, 0.25, 0.75, 1.25, edges repeated.
  EXPECT_EQ(resize(line({0, 100}), 1, 4), line({0, 25, 75, 100}));
  // Half the pixels: a triangle over four, weights 1/8, 3/8, 3/8, 1/8; at the edges over those that
  // exist.
  EXPECT_EQ(resize(line({0, 80, 160, 240}), 1, 2),
            line({static_cast<uint8_t>(std::lround((3 * 0 + 3 * 80 + 160) / 7.0)),
                  static_cast<uint8_t>(std::lround((80 + 3 * 160 + 3 * 240) / 7.0))}));
  EXPECT_EQ(resize({2, 1, 1, {10, 30}}, 1, 1).pixels, std::vector<uint8_t>{20});
}

TEST(Resize, AnEvenImageStaysEven) {
  for (int64_t size : {1, 2, 3, 9, 31, 100}) {
    const Image even{13, 11, 3, std::vector<uint8_t>(13 * 11 * 3, 201)};
    const Image result = resize(even, size, size + 1);
    EXPECT_EQ(result.pixels, std::vector<uint8_t>(static_cast<size_t>(size * (size + 1) * 3), 201));
  }
}

// Plain loops in double precision.
TEST(Resize, AgreesWithAReference) {
  for (const auto& [from, to] : {std::pair{28, 32}, std::pair{32, 28}, std::pair{17, 5}}) {
    const Image image = patterned(3, from, 3, static_cast<uint32_t>(from));
    const Image result = resize(image, 3, to);
    const double scale = static_cast<double>(from) / to, reach = std::max(scale, 1.0);
    for (int64_t y = 0; y < 3; ++y) {
      for (int64_t x = 0; x < to; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          double sum = 0, total = 0;
          for (int64_t k = 0; k < from; ++k) {
            const double distance =
                std::abs(static_cast<double>(k) - (static_cast<double>(x) + 0.5) * scale + 0.5);
            const double weight = std::max(0.0, 1 - distance / reach);
            sum += weight * image.pixels[static_cast<size_t>((y * from + k) * 3 + c)];
            total += weight;
          }
          EXPECT_NEAR(result.pixels[static_cast<size_t>((y * to + x) * 3 + c)], sum / total, 0.51);
        }
      }
    }
  }
}

TEST(Resize, SizesThatCannotBeAreRefused) {
  const Image image = patterned(4, 4, 1, 1);
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{0, 4}, {4, 0}, {-1, 4}, {4, max_image_side + 1}}) {
    EXPECT_THROW(resize(image, rows, columns), InvalidArgument);
    EXPECT_THROW(resized(std::make_shared<MemoryStore>(1, 4, 4, 1), rows, columns),
                 InvalidArgument);
  }
  EXPECT_THROW(resize(Image{}, 4, 4), InvalidArgument);
  EXPECT_THROW(resized(nullptr, 4, 4), InvalidArgument);
}

TEST(Resize, TheShorterSideGivesTheLongerOneAsInTorchvision) {
  EXPECT_EQ(size_of_shorter(375, 500, 256), (Size2d{256, 341}));  // 341.33
  EXPECT_EQ(size_of_shorter(500, 375, 256), (Size2d{341, 256}));
  EXPECT_EQ(size_of_shorter(7, 7, 256), (Size2d{256, 256}));
  EXPECT_EQ(size_of_shorter(1, 1, 1), (Size2d{1, 1}));
  EXPECT_EQ(size_of_shorter(1, 3, 5), (Size2d{5, 15}));
  EXPECT_EQ(size_of_shorter(max_image_side, max_image_side - 1, 3), (Size2d{3, 3}));
  for (const int64_t side : {int64_t{0}, int64_t{-1}, max_image_side + 1}) {
    EXPECT_THROW(size_of_shorter(4, 4, side), InvalidArgument);
    EXPECT_THROW(shorter_resized(std::make_shared<MemoryStore>(1, 4, 4, 1), side), InvalidArgument);
  }
  EXPECT_THROW(size_of_shorter(0, 4, 4), InvalidArgument);
  EXPECT_THROW(shorter_resized(nullptr, 4), InvalidArgument);
}

TEST(Resize, AStoreOfShorterSidesHasDigestsOfItsOwnAndNamesWhatGetsTooLong) {
  const auto store = std::make_shared<MemoryStore>(3, 6, 4, 3);
  store->images[1] = patterned(5, 9, 3, 7);
  store->images[2] = patterned(1, max_image_side, 1, 7);
  const DatastorePtr small = shorter_resized(store, 4);
  EXPECT_EQ(read_image(*small, 0), store->images[0]);  // it has this size already
  EXPECT_EQ(read_image(*small, 1), resize(store->images[1], 4, 7));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(small->read(i).content, small->content_digest(i));
    EXPECT_NE(small->content_digest(i), store->content_digest(i));
    EXPECT_NE(small->content_digest(i), shorter_resized(store, 3)->content_digest(i));
    EXPECT_EQ(small->label(i), store->label(i));
  }
  EXPECT_EQ(read_image(*center_cropped(small, 4, 4), 1),
            crop(resize(store->images[1], 4, 7), 4, 4));
  EXPECT_THROW(read_image(*small, 2), DataError);
  EXPECT_EQ(read_image(*shorter_resized(store, 1), 2), store->images[2]);
}

TEST(Resize, AStoreKeepsAllButThePixels) {
  const auto store = std::make_shared<MemoryStore>(5, 6, 4, 3);
  const DatastorePtr small = resized(store, 3, 2);
  ASSERT_EQ(small->size(), 5);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read_image(*small, i), resize(store->images[static_cast<size_t>(i)], 3, 2));
    EXPECT_EQ(small->read(i).content, store->content_digest(i));
    EXPECT_EQ(small->label(i), store->label(i));
    EXPECT_EQ(small->name(i), store->name(i));
  }
  EXPECT_EQ(small->classes(), store->classes());
}

}  // namespace
}  // namespace lockstep
