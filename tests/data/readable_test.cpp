// The list of readable images is the same for any number of threads.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::MemoryStore;
using testing::message_of;

std::shared_ptr<MemoryStore> with_bad(const std::vector<int64_t>& bad) {
  auto store = std::make_shared<MemoryStore>(20, 2, 2, 1);
  store->on_read = [bad](int64_t i) {
    for (const int64_t b : bad) {
      if (b == i) throw DataError("number " + std::to_string(i) + " is torn");
    }
  };
  return store;
}

TEST(ReadableImages, LeavesOutAndNamesWhatCannotBeRead) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto store = with_bad({0, 7, 19});
    const ReadableImages found = readable_images(store, pool);
    ASSERT_EQ(found.store->size(), 17);
    EXPECT_EQ(found.store->name(0), "image 1");
    EXPECT_EQ(found.indices[6], 8);
    ASSERT_EQ(found.unreadable.size(), 3u);
    EXPECT_EQ(found.unreadable[1].name, "image 7");
    EXPECT_EQ(found.unreadable[1].reason, "number 7 is torn");
    EXPECT_EQ(store->reads, 20);
    // The digest is that of the same images without the unreadable ones.
    std::vector<int64_t> good;
    for (int64_t i = 1; i < 19; ++i) {
      if (i != 7) good.push_back(i);
    }
    const DatastorePtr sound = std::make_shared<MemoryStore>(20, 2, 2, 1);
    EXPECT_EQ(listing_digest(*found.store, pool), listing_digest(*subset(sound, good), pool));
  }
}

TEST(ReadableImages, AllGoodIsTheStoreItselfAndAllBadAnError) {
  ThreadPool pool(2);
  const DatastorePtr good = with_bad({});
  EXPECT_EQ(readable_images(good, pool).store, good);
  const auto bad = subset(with_bad({3, 4}), {4, 3});
  const std::string message = message_of<DataError>([&] { readable_images(bad, pool); });
  EXPECT_NE(message.find("none of the 2 images of 2 of memory can be read; the first: number 4"),
            std::string::npos)
      << message;
  EXPECT_EQ(readable_images(subset(good, {}), pool).store->size(), 0);
  EXPECT_THROW(readable_images(nullptr, pool), InvalidArgument);
}

TEST(ReadableImages, AreStoppedWhileTheyAreRead) {
  ThreadPool pool(2);
  const auto store = with_bad({3});
  EXPECT_EQ(message_of<Cancelled>(
                [&] { readable_images(store, pool, [&] { return store->reads >= 4; }); }),
            "[data] stopped while the images were read");
  EXPECT_LT(store->reads, 8);
  EXPECT_EQ(readable_images(store, pool, [] { return false; }).store->size(), 19);
}

TEST(ReadableImages, OtherErrorsAreNotTakenForBadImages) {
  ThreadPool pool(2);
  const auto store = std::make_shared<MemoryStore>(5, 2, 2, 1);
  store->on_read = [](int64_t) { throw InternalError("a bug"); };
  EXPECT_THROW(readable_images(store, pool), InternalError);
}

}  // namespace
}  // namespace lockstep
