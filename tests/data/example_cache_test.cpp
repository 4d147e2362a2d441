// The cache changes only the speed. Statistics are exact.
#include "lockstep/data/batches/example_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::MemoryStore;
using testing::message_of;
using testing::patterned;

std::vector<uint8_t> copy_of(const ExampleCache& cache, int64_t index) {
  std::vector<uint8_t> scratch;
  const uint8_t* data = cache.get(index, scratch);
  return {data, data + cache.example_bytes()};
}

TEST(ExampleCache, AnyBudgetGivesTheSameImagesAndKeepsWhatItHolds) {
  for (const size_t budget : {size_t{0}, size_t{59}, size_t{60}, size_t{250}, size_t{100000}}) {
    const auto store = std::make_shared<MemoryStore>(10, 4, 5, 3);
    const ExampleCache cache(store, 4, 5, 3, budget);
    EXPECT_EQ(cache.capacity(), std::min<int64_t>(10, static_cast<int64_t>(budget / 60)));
    for (int round = 0; round < 3; ++round) {
      for (int64_t i = 9; i >= 0; --i) {
        ASSERT_EQ(copy_of(cache, i), to_planes(store->images[static_cast<size_t>(i)]));
      }
    }
    EXPECT_EQ(store->reads, cache.capacity() + 3 * (10 - cache.capacity()));
  }
}

// Worker processes do this; they have the datastore, too.
TEST(ExampleCache, SharedImagesAreDecodedOnce) {
  for (const size_t budget : {size_t{0}, size_t{250}, size_t{100000}}) {
    const auto first = std::make_shared<MemoryStore>(10, 4, 5, 3);
    const auto second = std::make_shared<MemoryStore>(10, 4, 5, 3);
    SharedMemory arena("lockstep-test");
    const ExampleCache one(first, 4, 5, 3, budget), other(second, 4, 5, 3, 1 << 20);
    const SharedRange range = one.share(arena);
    ThreadPool pool(2);
    one.fill(pool);
    other.attach(arena, range);
    EXPECT_EQ(other.capacity(), one.capacity());
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(copy_of(other, i), to_planes(first->images[static_cast<size_t>(i)]));
    }
    EXPECT_EQ(second->reads, 10 - one.capacity());
    const ExampleCache fewer(std::make_shared<MemoryStore>(9, 4, 5, 3), 4, 5, 3, budget);
    EXPECT_THROW(fewer.attach(arena, range), InvalidArgument);
  }
}

TEST(ExampleCache, ThoseWhoShareNoticeChangedImages) {
  for (const CachedImages kind : {CachedImages::exact, CachedImages::windowed}) {
    const auto first = std::make_shared<MemoryStore>(3, 4, 5, 3);
    const auto second = std::make_shared<MemoryStore>(3, 4, 5, 3);
    second->images[1].pixels[0] ^= 1;
    SharedMemory arena("lockstep-test");
    const ExampleCache one(first, 4, 5, 3, 0, kind), other(second, 4, 5, 3, 0, kind);
    const SharedRange range = one.share(arena);
    ThreadPool pool(1);
    one.fill(pool);
    other.attach(arena, range);
    EXPECT_EQ(copy_of(other, 0), copy_of(one, 0));
    EXPECT_THROW(copy_of(other, 1), DataError);
  }
}

TEST(ExampleCache, ManyThreadsSeeWholeImages) {
  const auto store = std::make_shared<MemoryStore>(50, 8, 8, 1);
  const ExampleCache cache(store, 8, 8, 1, 64 * 30);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint8_t> scratch;
      for (int64_t k = 0; k < 2000; ++k) {
        const int64_t i = (k * (2 * t + 1)) % 50;
        const uint8_t* data = cache.get(i, scratch);
        wrong += std::memcmp(data, store->images[static_cast<size_t>(i)].pixels.data(), 64) != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ExampleCache, GrayAndColorAreConvertedToWhatIsExpected) {
  const auto store = std::make_shared<MemoryStore>(2, 3, 3, 1);
  store->images[1] = patterned(3, 3, 3, 4);
  const ExampleCache color(store, 3, 3, 3, 1000), gray(store, 3, 3, 1, 0);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(copy_of(color, static_cast<int64_t>(i)),
              to_planes(convert_channels(store->images[i], 3)));
    EXPECT_EQ(copy_of(gray, static_cast<int64_t>(i)),
              to_planes(convert_channels(store->images[i], 1)));
  }
}

TEST(ExampleCache, AnotherSizeIsADataErrorThatNamesTheFileAndBothSizes) {
  const testing::TemporaryFolder folder;
  folder.write("cat/1.png", encode_png(patterned(4, 6, 3, 1)));
  const ExampleCache cache(image_folder(folder.path), 32, 32, 3, 10000);
  const std::string message = message_of<DataError>([&] { copy_of(cache, 0); });
  for (const char* part : {"cat/1.png", "4 x 6 x 3", "32 x 32 x 3"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_THROW(copy_of(cache, 1), InvalidArgument);
  EXPECT_THROW(copy_of(cache, -1), InvalidArgument);
}

TEST(ExampleCache, SizesThatCannotBeAreRefused) {
  const auto store = std::make_shared<MemoryStore>(2, 3, 3, 1);
  EXPECT_THROW(ExampleCache(store, 0, 3, 1, 0), InvalidArgument);
  EXPECT_THROW(ExampleCache(store, 3, -3, 1, 0), InvalidArgument);
  EXPECT_THROW(ExampleCache(store, 3, 3, 2, 0), InvalidArgument);
  EXPECT_THROW(ExampleCache(nullptr, 3, 3, 1, 0), InvalidArgument);
}

TEST(ExampleCache, FillReadsEachImageOnceAndTellsDigestAndStatistics) {
  ThreadPool two(2), one(1);
  const auto store = std::make_shared<MemoryStore>(40, 4, 4, 3);
  const ExampleCache cache(store, 4, 4, 3, 48 * 25);
  const ExampleCache::Contents contents = cache.fill(two);
  EXPECT_EQ(store->reads, 40);
  EXPECT_EQ(contents.listing, listing_digest(*store, one));
  EXPECT_EQ(contents.statistics.at(0), channel_statistics(cache, one));
  EXPECT_EQ(store->reads, 40 + 15);  // 25 were cached
  EXPECT_EQ(contents.statistics.at(0), channel_statistics(cache, two));
}

TEST(ExampleCache, FillReportsTheFirstBadImage) {
  ThreadPool two(2);
  const auto store = std::make_shared<MemoryStore>(40, 4, 4, 1);
  store->images[31] = patterned(1, 1, 1, 1);
  store->images[17] = patterned(2, 2, 1, 1);
  const ExampleCache cache(store, 4, 4, 1, 0);
  EXPECT_NE(message_of<DataError>([&] { cache.fill(two); }).find("image 17"), std::string::npos);
}

TEST(ListingDigest, CountsContentsNamesLabelsClassesAndOrder) {
  ThreadPool one(1), three(3);
  const auto make = [] { return std::make_shared<MemoryStore>(9, 2, 2, 1); };
  const Digest digest = listing_digest(*make(), one);
  EXPECT_EQ(listing_digest(*make(), three), digest);
  const auto content = make();
  content->images[8].pixels[3] ^= 1;
  EXPECT_NE(listing_digest(*content, one), digest);
  const auto classes = make();
  classes->names = {"a", "b", "d"};
  EXPECT_NE(listing_digest(*classes, one), digest);
  const std::vector<int64_t> straight{0, 1, 2, 3, 4, 5, 6, 7, 8},
      swapped{0, 1, 2, 3, 5, 4, 6, 7, 8};
  EXPECT_EQ(listing_digest(*subset(make(), straight), one), digest);
  EXPECT_NE(listing_digest(*subset(make(), swapped), one), digest);
  struct Relabeled : MemoryStore {
    using MemoryStore::MemoryStore;
    int64_t label(int64_t index) const override { return index == 4 ? 0 : index % 3; }
  };
  EXPECT_NE(listing_digest(Relabeled(9, 2, 2, 1), one), digest);
  struct Renamed : MemoryStore {
    using MemoryStore::MemoryStore;
    std::string name(int64_t index) const override { return "picture " + std::to_string(index); }
  };
  EXPECT_NE(listing_digest(Renamed(9, 2, 2, 1), one), digest);
}

TEST(Statistics, AreExactForKnownPixels) {
  const auto store = std::make_shared<MemoryStore>(2, 1, 2, 3);
  store->images[0].pixels = {0, 10, 255, 2, 10, 255};
  store->images[1].pixels = {4, 10, 255, 6, 10, 0};
  ThreadPool two(2);
  const ChannelStatistics s = channel_statistics(ExampleCache(store, 1, 2, 3, 0), two);
  EXPECT_EQ(s.sum, (std::vector<uint64_t>{12, 40, 765}));
  EXPECT_EQ(s.sum_of_squares, (std::vector<uint64_t>{0 + 4 + 16 + 36, 400, 3 * 65025}));
  EXPECT_EQ(s.min, (std::vector<uint8_t>{0, 10, 0}));
  EXPECT_EQ(s.max, (std::vector<uint8_t>{6, 10, 255}));
  EXPECT_EQ(s.count, 4u);
  EXPECT_EQ(s.mean(0), 3.0);
  EXPECT_EQ(s.standard_deviation(0), std::sqrt(5.0));
  EXPECT_EQ(s.standard_deviation(1), 0.0);
  EXPECT_EQ(s.mean(2), 191.25);
}

TEST(Statistics, DoNotDependOnTheNumberOfThreads) {
  const auto store = std::make_shared<MemoryStore>(101, 5, 3, 3);
  const ExampleCache cache(store, 5, 3, 3, 45 * 50);
  ThreadPool one(1);
  const ChannelStatistics expected = channel_statistics(cache, one);
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(channel_statistics(cache, pool), expected);
  }
}

TEST(Statistics, StayExactWhereDoublesOr64BitsWouldNot) {
  ChannelStatistics s(1);
  s.count = uint64_t{1} << 47;
  s.sum = {255 * s.count - 1};  // one pixel of 254
  s.sum_of_squares = {65025 * s.count - 65025 + 64516};
  const double n = 0x1p47;
  EXPECT_DOUBLE_EQ(s.standard_deviation(0), std::sqrt((n - 1) / n / n));
  ChannelStatistics other = s;
  other.merge(s);
  EXPECT_THROW(other.merge(s), InternalError);  // three times 9.15e18 is more than 2^64
  EXPECT_THROW(other.merge(ChannelStatistics(3)), InvalidArgument);
  const ChannelStatistics none(2);
  EXPECT_EQ(none.mean(1), 0);
  EXPECT_EQ(none.standard_deviation(1), 0);
}

}  // namespace
}  // namespace lockstep
