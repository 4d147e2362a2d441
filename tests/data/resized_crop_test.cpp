// Regions of images that are drawn and resized, as torchvision's RandomResizedCrop.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::MemoryStore;
using testing::patterned;

// Images of many sizes, one of them a single pixel.
std::shared_ptr<MemoryStore> of_any_size(int64_t n, int64_t channels = 3) {
  auto store = std::make_shared<MemoryStore>(n, 1, 1, channels);
  for (int64_t i = 1; i < n; ++i) {
    store->images[static_cast<size_t>(i)] =
        patterned(1 + i * 7 % 23, 1 + i * 5 % 31, channels, static_cast<uint32_t>(i));
  }
  return store;
}

Image part_of(const Image& image, const Region& r) {
  Image part{r.height, r.width, image.channels, {}};
  for (int64_t y = r.top; y < r.top + r.height; ++y) {
    for (int64_t x = r.left; x < r.left + r.width; ++x) {
      for (int64_t c = 0; c < image.channels; ++c) {
        const int64_t at = (y * image.width + x) * image.channels + c;
        part.pixels.push_back(image.pixels.at(static_cast<size_t>(at)));
      }
    }
  }
  return part;
}

bool lies_within(const Region& r, int64_t height, int64_t width) {
  return r.height >= 1 && r.width >= 1 && r.top >= 0 && r.left >= 0 && r.top + r.height <= height &&
         r.left + r.width <= width;
}

TEST(ResizedCrop, RegionsHaveTheAreaAndTheRatioOfTorchvision) {
  // Means over 100,000 draws of torchvision 0.29.2: RandomResizedCrop.get_params(), 500 x 375.
  double area = 0, ratio = 0, top = 0;
  int narrow = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const Region r = resized_region(draw_resized_crop({}, 3, i / 1000, i % 1000), 375, 500);
    ASSERT_TRUE(lies_within(r, 375, 500)) << i;
    const double share = static_cast<double>(r.height * r.width) / (375 * 500);
    const double sides = static_cast<double>(r.width) / static_cast<double>(r.height);
    ASSERT_GT(share, 0.078) << i;
    ASSERT_GT(sides, 0.745) << i;
    ASSERT_LT(sides, 1.345) << i;
    area += share / kDraws;
    ratio += std::log(sides) / kDraws;
    top += static_cast<double>(r.top) / static_cast<double>(375 - r.height + 1) / kDraws;
    narrow += sides < 1 ? 1 : 0;
  }
  EXPECT_NEAR(area, 0.4338, 0.006);
  EXPECT_NEAR(ratio, 0.0310, 0.006);
  EXPECT_NEAR(top, 0.4831, 0.01);
  EXPECT_NEAR(static_cast<double>(narrow) / kDraws, 0.4136, 0.012);
}

TEST(ResizedCrop, WithoutAFitTheCenterIsTaken) {
  // Of a line no region of these ratios has a tenth of the area.
  const RandomResizedCrop large{.area = {0.5, 1}};
  EXPECT_EQ(resized_region(draw_resized_crop(large, 1, 0, 0), 10, 1000), (Region{0, 493, 10, 13}));
  EXPECT_EQ(resized_region(draw_resized_crop(large, 1, 0, 0), 1000, 10), (Region{493, 0, 13, 10}));
  EXPECT_EQ(resized_region(draw_resized_crop(large, 1, 0, 0), 1, 1), (Region{0, 0, 1, 1}));
  EXPECT_TRUE(lies_within(resized_region(draw_resized_crop({}, 1, 0, 0), 1, 16384), 1, 16384));
  const RandomResizedCrop never{.area = {1, 1}, .ratio = {0.5, 0.5}};
  EXPECT_EQ(resized_region(draw_resized_crop(never, 1, 0, 0), 8, 8), (Region{0, 2, 8, 4}));
  const RandomResizedCrop whole{.area = {1, 1}, .ratio = {2, 2}};
  EXPECT_EQ(resized_region(draw_resized_crop(whole, 1, 0, 0), 8, 16), (Region{0, 0, 8, 16}));
}

TEST(ResizedCrop, TheCenterHasTheProportionsOfTheInput) {
  EXPECT_EQ(central_region({10, 20}, 5, 5), (Region{0, 5, 10, 10}));
  EXPECT_EQ(central_region({20, 10}, 5, 5), (Region{5, 0, 10, 10}));
  EXPECT_EQ(central_region({9, 9}, 2, 3), (Region{1, 0, 6, 9}));
  EXPECT_EQ(central_region({1, 100}, 30, 1), (Region{0, 49, 1, 1}));
  EXPECT_EQ(central_region({5, 7}, 5, 7), (Region{0, 0, 5, 7}));
}

TEST(ResizedCrop, DrawsDependOnTheirKeyAlone) {
  const RegionDraw one = draw_resized_crop({}, 1, 2, 3, 4);
  EXPECT_EQ(one, draw_resized_crop({}, 1, 2, 3, 4));
  EXPECT_NE(one, draw_resized_crop({}, 9, 2, 3, 4));
  EXPECT_NE(one, draw_resized_crop({}, 1, 9, 3, 4));
  EXPECT_NE(one, draw_resized_crop({}, 1, 2, 9, 4));
  EXPECT_NE(one, draw_resized_crop({}, 1, 2, 3, 9));
  // Erasing, which is drawn of the same key, has other blocks.
  Augmentation erasing;
  erasing.random_erasing = 1;
  EXPECT_NE(draw_augmentation(erasing, 1, 2, 3, 4).erasing.tries, one.tries);
}

TEST(ResizedCrop, RangesThatCannotBeAreRefused) {
  for (const RandomResizedCrop& wrong :
       {RandomResizedCrop{.area = {0.5, 0.4}}, RandomResizedCrop{.area = {-0.1, 1}},
        RandomResizedCrop{.area = {0.1, 1.5}}, RandomResizedCrop{.area = {0, 0}},
        RandomResizedCrop{.ratio = {0, 1}}, RandomResizedCrop{.ratio = {2, 1}},
        RandomResizedCrop{.ratio = {1, NAN}}}) {
    EXPECT_THROW(wrong.check(), InvalidArgument);
    EXPECT_THROW(draw_resized_crop(wrong, 1, 0, 0), InvalidArgument);
  }
}

TEST(ResizedCrop, TheCacheResizesTheRegion) {
  for (const int64_t channels : {1, 3}) {
    const auto store = of_any_size(40, channels);
    const ExampleCache cache(store, 6, 9, channels, 10'000, CachedImages::resized);
    ThreadPool pool(2);
    cache.fill(pool);
    std::vector<uint8_t> scratch;
    for (int64_t i = 0; i < store->size(); ++i) {
      const Image& image = store->images[static_cast<size_t>(i)];
      const RegionDraw draw = draw_resized_crop({}, 1, 0, i);
      const Region drawn = resized_region(draw, image.height, image.width);
      const Image expected = resize(part_of(image, drawn), 6, 9);
      const uint8_t* found = cache.get(i, {.center = false, .region = draw}, scratch);
      EXPECT_EQ(std::vector<uint8_t>(found, found + 54 * channels), to_planes(expected)) << i;
      const Region center = central_region({image.height, image.width}, 6, 9);
      found = cache.get(i, scratch);
      EXPECT_EQ(std::vector<uint8_t>(found, found + 54 * channels),
                to_planes(resize(part_of(image, center), 6, 9)))
          << i;
    }
  }
}

TEST(ResizedCrop, MiniBatchesDependOnNoThreadsAndNoMemory) {
  const auto store = of_any_size(37);
  const auto digests = [&](int threads, size_t bytes) {
    MiniBatchQueueOptions options{.mini_batch_size = 8, .seed = 5, .max_epochs = 2};
    options.resized_crop.emplace();
    options.augmentation.reflect_x = true;
    options.threads = threads;
    options.cache_bytes = bytes;
    MiniBatchQueue queue(store, {Shape{3, 7, 5}}, options);
    std::vector<Digest> all;
    while (queue.has_data()) {
      const std::vector<std::byte>& bytes_of = queue.next()->input().bytes;
      all.push_back(digest_of(bytes_of.data(), bytes_of.size()));
    }
    return all;
  };
  const std::vector<Digest> one = digests(1, 0);
  EXPECT_EQ(one.size(), 8u);
  EXPECT_EQ(digests(2, 5000), one);
  EXPECT_EQ(digests(5, 1 << 20), one);
}

}  // namespace
}  // namespace lockstep
