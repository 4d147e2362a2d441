// Mini-batches that compute threads help to prepare have the contents of all others.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "tests/base/waiting.h"
#include "tests/data/queues.h"

namespace lockstep {
namespace {

using testing::await;
using testing::awkward;
using testing::cache_of;
using testing::drain;
using testing::expect_equal;
using testing::MemoryStore;
using testing::message_of;
using testing::small_cache;

TEST(MiniBatchQueue, HelpersDoNotChangeIt) {
  MiniBatchQueueOptions options = awkward();
  options.mini_batch_size = 20;  // several row ranges, and a last one of 3 observations
  options.drop_last = false;
  MiniBatchQueue alone(small_cache(), options);
  const std::vector<MiniBatch> expected = drain(alone);
  options.helped = true;
  for (const int prefetch : {1, 2, 5}) {
    for (const int helpers : {0, 1, 3}) {
      options.prefetch = prefetch;
      MiniBatchQueue queue(small_cache(), options);
      std::atomic<bool> stop = false;
      std::atomic<int> helped = 0;
      std::vector<std::thread> threads;
      for (int i = 0; i < helpers; ++i) {
        threads.emplace_back([&, i] {
          while (!stop) {
            if (queue.help(i % 2 == 0)) {
              ++helped;
            } else {
              std::this_thread::yield();
            }
          }
        });
      }
      EXPECT_TRUE(helpers == 0 || await([&] { return helped > 0; })) << "no thread helped";
      expect_equal(drain(queue), expected);
      EXPECT_FALSE(queue.help(true)) << "all epochs are over";
      stop = true;
      for (std::thread& thread : threads) thread.join();
    }
  }
}

TEST(MiniBatchQueue, HelpPreparesOnlyTheRequestedPart) {
  MiniBatchQueueOptions options = awkward();
  options.prefetch = 3;
  options.helped = true;
  const auto row_ranges = [](MiniBatchQueue& queue, bool ahead) {
    int count = 0;
    while (queue.help(ahead)) ++count;
    return count;
  };
  MiniBatchQueue queue(small_cache(), options);  // mini-batches of 5 observations: one range each
  EXPECT_EQ(row_ranges(queue, false), 1);
  EXPECT_EQ(row_ranges(queue, true), 2);
  EXPECT_EQ(queue.next()->index, 0);
  EXPECT_EQ(row_ranges(queue, false), 0) << "the next one is there";
  EXPECT_EQ(row_ranges(queue, true), 1);
  EXPECT_EQ(queue.seconds_each(), 0) << "of background threads, which had nothing to do";
  // Only for queues with `helped`, and not if a file would have to be read.
  options.helped = false;
  MiniBatchQueue unhelped(small_cache(), options);
  EXPECT_FALSE(unhelped.help(true));
  options.helped = true;
  MiniBatchQueue from_disk(small_cache(23, 600), options);
  EXPECT_FALSE(from_disk.help(true));
  EXPECT_EQ(from_disk.next()->index, 0);
}

// A cache of which an earlier reading is known.
std::shared_ptr<const ExampleCache> recalled_cache(std::shared_ptr<MemoryStore> store) {
  ThreadPool pool(2);
  const auto first = cache_of(store), later = cache_of(store);
  const ExampleCache::Contents found = first->fill(pool);
  later->recall(first->contents(), found.statistics, [] {});
  return later;
}

TEST(MiniBatchQueue, HelpersReadNothingThatAnEarlierReadingKnew) {
  MiniBatchQueueOptions options = awkward();
  MiniBatchQueue alone(small_cache(), options);
  const std::vector<MiniBatch> expected = drain(alone);
  options.helped = true;
  const auto store = std::make_shared<MemoryStore>(23, 5, 4, 3);
  const auto cache = recalled_cache(store);
  std::atomic<int> by_helper = 0;
  const auto here = std::this_thread::get_id();
  store->on_read = [&](int64_t) {
    if (std::this_thread::get_id() == here) ++by_helper;
  };
  MiniBatchQueue queue(cache, options);
  EXPECT_FALSE(queue.help(true)) << "before the files were read";
  std::vector<MiniBatch> all;
  int helped = 0;
  while (queue.has_data()) {
    all.push_back(*queue.next());
    while (queue.help(true)) ++helped;
  }
  expect_equal(all, expected);
  EXPECT_EQ(by_helper, 0);
  EXPECT_GT(helped, 0) << "after the files were read";
  EXPECT_TRUE(cache->filled());
}

TEST(MiniBatchQueue, AllCoresReadWhatAnEarlierReadingKnew) {
  if (available_cores() < 2) GTEST_SKIP() << "there is one core";
  MiniBatchQueueOptions options = awkward();
  options.threads = 1;
  for (const bool helped : {false, true}) {
    options.helped = helped;
    const auto store = std::make_shared<MemoryStore>(23, 5, 4, 3);
    const auto cache = recalled_cache(store);
    std::mutex mutex;
    std::set<std::thread::id> readers;
    const auto two = [&] {
      const std::lock_guard lock(mutex);
      return readers.size() > 1;
    };
    store->on_read = [&](int64_t) {
      {
        const std::lock_guard lock(mutex);
        readers.insert(std::this_thread::get_id());
      }
      await(two);
    };
    MiniBatchQueue queue(cache, options);
    drain(queue);
    EXPECT_TRUE(two());
  }
}

TEST(MiniBatchQueue, AnErrorOfAHelperIsThrownInOrder) {
  const auto store = std::make_shared<MemoryStore>(23, 5, 4, 3);
  store->images[12] = testing::patterned(2, 2, 3, 1);
  MiniBatchQueueOptions options = awkward();
  options.shuffle = Shuffle::never;
  options.prefetch = 8;
  options.helped = true;
  MiniBatchQueue queue(cache_of(store), options);
  int row_ranges = 0;
  while (queue.help(true)) ++row_ranges;
  EXPECT_GT(row_ranges, 2) << "the helper has not come to image 12";
  EXPECT_EQ(queue.next()->index, 0);
  EXPECT_EQ(queue.next()->index, 1);
  for (int i = 0; i < 2; ++i) {
    const std::string message = message_of<DataError>([&] { queue.next(); });
    EXPECT_NE(message.find("image 12"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace lockstep
