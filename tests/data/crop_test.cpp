// Crops of images: their positions, in the cache and in the queue.
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::copy_of;
using testing::MemoryStore;
using testing::message_of;
using testing::patterned;

// Images of different sizes, all at least 5 x 4.
std::shared_ptr<MemoryStore> different(int64_t n, int64_t channels = 3) {
  auto store = std::make_shared<MemoryStore>(n, 5, 4, channels);
  for (int64_t i = 0; i < n; ++i) {
    store->images[static_cast<size_t>(i)] =
        patterned(5 + i % 3, 4 + i % 5, channels, static_cast<uint32_t>(i));
  }
  return store;
}

TEST(Crop, TakesTheCenterAndTheCorners) {
  Image image{4, 5, 1, {}};
  for (int i = 0; i < 20; ++i) image.pixels.push_back(static_cast<uint8_t>(i));
  EXPECT_EQ(crop(image, 2, 3), (Image{2, 3, 1, {6, 7, 8, 11, 12, 13}}));
  EXPECT_EQ(crop(image, 1, 2), (Image{1, 2, 1, {6, 7}}));  // rounded up and to the left
  EXPECT_EQ(crop(image, 4, 5), image);
  EXPECT_EQ(crop(image, 1, 1, {false, 0, 0}).pixels[0], 0);
  EXPECT_EQ(crop(image, 1, 1, {false, ~0u, ~0u}).pixels[0], 19);
  EXPECT_THROW(crop(image, 5, 5), InvalidArgument);
  EXPECT_THROW(crop(image, 0, 1), InvalidArgument);
}

TEST(Crop, RandomWindowsLieEverywhereEvenlyAndDependOnTheirKey) {
  std::map<int64_t, int> tops;
  for (int i = 0; i < 3000; ++i) {
    const Window window = draw_window(1, i / 100, i % 100);
    ++tops[window.top(7, 5)];
  }
  ASSERT_EQ(tops.size(), 3u);
  for (const auto& [top, count] : tops) EXPECT_NEAR(count, 1000, 160) << top;
  const auto same = [](const Window& a, const Window& b) {
    return a.row == b.row && a.column == b.column;
  };
  EXPECT_TRUE(same(draw_window(1, 2, 3, 4), draw_window(1, 2, 3, 4)));
  EXPECT_FALSE(same(draw_window(9, 2, 3, 4), draw_window(1, 2, 3, 4)));
  EXPECT_FALSE(same(draw_window(1, 9, 3, 4), draw_window(1, 2, 3, 4)));
  EXPECT_FALSE(same(draw_window(1, 2, 9, 4), draw_window(1, 2, 3, 4)));
  EXPECT_FALSE(same(draw_window(1, 2, 3, 9), draw_window(1, 2, 3, 4)));
}

TEST(Crop, CentersOfADatastoreHaveDigestsOfTheirOwnAndNameWhatIsTooSmall) {
  const auto store = different(6);
  const DatastorePtr cropped = center_cropped(store, 5, 4);
  for (int64_t i = 0; i < 6; ++i) {
    const Digest content = cropped->read(i).content;
    EXPECT_EQ(read_image(*cropped, i), crop(store->images[static_cast<size_t>(i)], 5, 4));
    EXPECT_EQ(content, cropped->content_digest(i));
    EXPECT_NE(content, store->content_digest(i));
    EXPECT_NE(content, center_cropped(store, 4, 5)->content_digest(i));
  }
  const std::string message = message_of<DataError>([&] { center_cropped(store, 6, 4)->read(3); });
  EXPECT_NE(message.find("image 3"), std::string::npos) << message;
  EXPECT_NE(message.find("5 x 7"), std::string::npos) << message;
  EXPECT_THROW(center_cropped(store, 0, 4), InvalidArgument);
  EXPECT_THROW(center_cropped(nullptr, 1, 1), InvalidArgument);
}

TEST(Crop, ACacheOfWholeImagesGivesAnyWindowWhateverItsBudget) {
  const auto store = different(9);
  ThreadPool pool(2);
  ExampleCache centers(center_cropped(store, 5, 4), 5, 4, 3, 1 << 20);
  const ExampleCache::Contents expected = centers.fill(pool);
  for (const size_t budget : {size_t{0}, size_t{400}, size_t{1} << 20}) {
    for (const bool filled : {false, true}) {
      ExampleCache cache(store, 5, 4, 3, budget, CachedImages::windowed);
      if (filled) {
        const ExampleCache::Contents contents = cache.fill(pool);
        EXPECT_NE(contents.listing, expected.listing) << "whole images are others than cut ones";
        EXPECT_EQ(contents.statistics, expected.statistics);
        EXPECT_EQ(channel_statistics(cache, pool), expected.statistics.at(0));
      }
      std::vector<uint8_t> scratch, other;
      for (int repeat = 0; repeat < 2; ++repeat) {
        for (int64_t i = 0; i < 9; ++i) {
          const Image& image = store->images[static_cast<size_t>(i)];
          const Window window = draw_window(1, repeat, i);
          Size2d whole{};
          const uint8_t* pixels = cache.get(i, window, scratch, &whole);
          EXPECT_EQ(std::vector<uint8_t>(pixels, pixels + 60),
                    to_planes(crop(image, 5, 4, window)));
          EXPECT_EQ(whole, (Size2d{image.height, image.width}));
          pixels = cache.get(i, scratch);
          const uint8_t* center = centers.get(i, other);
          EXPECT_EQ(std::vector<uint8_t>(pixels, pixels + 60),
                    std::vector<uint8_t>(center, center + 60));
        }
      }
    }
  }
}

TEST(Crop, WholeImagesAreReadOnceWhereTheBudgetHoldsThem) {
  const auto store = different(9);
  ExampleCache cache(store, 5, 4, 3, 1 << 20, CachedImages::windowed);
  std::vector<uint8_t> scratch;
  for (int i = 0; i < 27; ++i) cache.get(i % 9, draw_window(1, i, i % 9), scratch);
  EXPECT_EQ(store->reads, 9);
  ExampleCache small(different(9), 6, 4, 3, 1 << 20, CachedImages::windowed);
  const std::string message = message_of<DataError>([&] { small.get(0, scratch); });
  EXPECT_NE(message.find("image 0"), std::string::npos) << message;
}

MiniBatchQueueOptions options_of() {
  MiniBatchQueueOptions options;
  options.mini_batch_size = 4;
  options.seed = 5;
  options.max_epochs = 3;
  options.drop_last = false;
  options.augmentation.reflect_x = true;
  options.augmentation.rotation = {-20, 20};
  return options;
}

TEST(Crop, TheQueueCutsAndThenAugmentsTheSameWhoeverDoesIt) {
  const auto store = different(11);
  std::vector<uint8_t> first;
  for (const int threads : {1, 3}) {
    for (const size_t budget : {size_t{0}, size_t{1} << 20}) {
      const auto cache =
          std::make_shared<ExampleCache>(store, 5, 4, 3, budget, CachedImages::windowed);
      MiniBatchQueueOptions options = options_of();
      options.threads = threads;
      options.targets = cache;
      MiniBatchQueue queue(cache, options);
      std::vector<uint8_t> all;
      while (queue.has_data()) {
        const auto batch = queue.next();
        const std::vector<uint8_t> pixels = copy_of<uint8_t>(batch->input());
        std::vector<float> targets;
        for (const uint8_t v : pixels) targets.push_back(static_cast<float>(v) / 255.0f);
        EXPECT_EQ(copy_of<float>((*batch)["targets"]), targets);
        all.insert(all.end(), pixels.begin(), pixels.end());
        for (int64_t i = 0; i < batch->size(); ++i) {
          const int64_t index = batch->observations[static_cast<size_t>(i)];
          const Image cut = crop(store->images[static_cast<size_t>(index)], 5, 4,
                                 draw_window(5, batch->epoch, index));
          Image expected = cut;
          augment_into(cut, draw_augmentation(options.augmentation, 5, batch->epoch, index),
                       expected.pixels.data());
          const auto begin = pixels.begin() + i * 60;
          ASSERT_EQ(std::vector<uint8_t>(begin, begin + 60), to_planes(expected));
        }
      }
      if (first.empty()) first = all;
      EXPECT_EQ(all, first);
    }
  }
}

TEST(Crop, TargetsOfAnotherSizeAreRefused) {
  const auto cache =
      std::make_shared<ExampleCache>(different(11), 5, 4, 3, 0, CachedImages::windowed);
  MiniBatchQueueOptions options = options_of();
  options.targets = std::make_shared<ExampleCache>(different(11), 5, 4, 3, 0);
  EXPECT_THROW(MiniBatchQueue(cache, options), InvalidArgument) << "not cut";
  options.augmentation = {};
  options.targets =
      std::make_shared<ExampleCache>(different(11), 5, 3, 3, 0, CachedImages::windowed);
  EXPECT_THROW(MiniBatchQueue(cache, options), InvalidArgument) << "another window";
  const auto larger = different(11, 1);
  larger->images[7] = patterned(9, 9, 1, 1);
  options.targets = std::make_shared<ExampleCache>(larger, 5, 4, 1, 0, CachedImages::windowed);
  MiniBatchQueue queue(cache, options);
  const std::string message = message_of<DataError>([&] {
    while (queue.has_data()) queue.next();
  });
  EXPECT_NE(message.find("image 7"), std::string::npos) << message;
  EXPECT_NE(message.find("its target has 9 x 9"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep
