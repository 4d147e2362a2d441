// Control of the mini-batch queue by the user: restarts, other orders, and transformed
// mini-batches.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::MemoryStore;
using testing::message_of;

std::shared_ptr<const ExampleCache> cache_without_memory(const DatastorePtr& store) {
  const Image first = read_image(*store, 0);
  return std::make_shared<ExampleCache>(store, first.height, first.width, first.channels, 0);
}

MiniBatchQueueOptions queue_options() {
  MiniBatchQueueOptions options;
  options.mini_batch_size = 4;
  options.drop_last = false;
  options.seed = 7;
  options.max_epochs = 3;
  options.threads = 2;
  options.augmentation.reflect_x = true;
  return options;
}

struct Seen {
  std::vector<int64_t> observations;
  std::vector<uint8_t> pixels;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen seen_of(MiniBatchQueue& queue) {
  Seen seen;
  while (queue.has_data()) {
    const auto batch = queue.next();
    seen.observations.insert(seen.observations.end(), batch->observations.begin(),
                             batch->observations.end());
    const std::span<const uint8_t> pixels = batch->input().values<uint8_t>();
    seen.pixels.insert(seen.pixels.end(), pixels.begin(), pixels.end());
  }
  return seen;
}

TEST(MiniBatchQueueByHand, ResetBeginsAgainFromAnywhere) {
  const auto cache = cache_without_memory(std::make_shared<MemoryStore>(11, 3, 2, 1));
  MiniBatchQueue queue(cache, queue_options());
  const Seen all = seen_of(queue);
  queue.reset();
  EXPECT_EQ(queue.epoch(), 0);
  EXPECT_EQ(seen_of(queue), all);
  queue.reset();
  queue.next();
  const auto kept = queue.next();  // outlives the queue
  const RowArray pixels = kept->input();
  queue.reset(1);
  EXPECT_EQ(kept->input(), pixels);
  EXPECT_EQ(queue.epoch(), 1);
  EXPECT_EQ(queue.batch(), 0);
  EXPECT_EQ(seen_of(queue).observations,
            std::vector<int64_t>(all.observations.begin() + 11, all.observations.end()));
  queue.reset(3);
  EXPECT_FALSE(queue.has_data());
  EXPECT_THROW(queue.reset(4), InvalidArgument);
  EXPECT_THROW(queue.reset(-1), InvalidArgument);
  queue.reset();
  EXPECT_EQ(seen_of(queue), all);
}

TEST(MiniBatchQueueByHand, ResetForgetsAnError) {
  const auto store = std::make_shared<MemoryStore>(8, 3, 2, 1);
  std::atomic<bool> broken{true};
  store->on_read = [&](int64_t) {
    if (broken) throw DataError("the disk is gone");
  };
  const auto cache = std::make_shared<ExampleCache>(store, 3, 2, 1, 0);
  MiniBatchQueue queue(cache, queue_options());
  EXPECT_THROW(queue.next(), DataError);
  EXPECT_THROW(queue.next(), DataError);
  broken = false;
  queue.reset();
  EXPECT_EQ(queue.next()->size(), 4);
}

TEST(MiniBatchQueueByHand, ShuffleIsANewQueueOfAnotherSeed) {
  const auto cache = cache_without_memory(std::make_shared<MemoryStore>(11, 3, 2, 1));
  MiniBatchQueueOptions options = queue_options();
  MiniBatchQueue queue(cache, options);
  const Seen first = seen_of(queue);
  queue.shuffle(99);
  options.seed = 99;
  MiniBatchQueue other(cache, options);
  const Seen expected = seen_of(other);
  EXPECT_NE(expected, first);
  EXPECT_EQ(seen_of(queue), expected);
  queue.reset();
  EXPECT_EQ(seen_of(queue), expected);
  // The usual loop of a user who shuffles each epoch explicitly.
  options.shuffle = Shuffle::never;
  options.max_epochs = 1;
  MiniBatchQueue plain(cache, options);
  EXPECT_EQ(seen_of(plain).observations, epoch_order(11, Shuffle::never, 0, 0));
  for (uint64_t seed = 0; seed < 3; ++seed) {
    plain.shuffle(seed);
    EXPECT_EQ(seen_of(plain).observations, epoch_order(11, Shuffle::once, seed, 0));
  }
}

TEST(MiniBatchQueueByHand, MiniBatchesAreChangedOnTheWay) {
  const auto cache = cache_without_memory(std::make_shared<MemoryStore>(11, 3, 2, 1));
  MiniBatchQueueOptions options = queue_options();
  MiniBatchQueue unchanged(cache, options);
  const Seen plain = seen_of(unchanged);
  options.preprocess = [](MiniBatch& batch) {
    // Doubles the width of each image and writes the epoch beside it.
    std::vector<uint8_t> wide;
    for (const uint8_t v : batch.input().values<uint8_t>()) {
      wide.push_back(v);
      wide.push_back(static_cast<uint8_t>(batch.epoch));
    }
    batch.set("input", Tensor::from(wide, {batch.size(), 1, 3, 4}));
  };
  std::vector<Seen> changed;
  for (const int threads : {1, 3}) {
    options.threads = threads;
    MiniBatchQueue queue(cache, options);
    changed.push_back(seen_of(queue));
  }
  EXPECT_EQ(changed[0], changed[1]);
  EXPECT_EQ(changed[0].observations, plain.observations);
  ASSERT_EQ(changed[0].pixels.size(), 2 * plain.pixels.size());
  for (size_t i = 0; i < plain.pixels.size(); ++i) {
    EXPECT_EQ(changed[0].pixels[2 * i], plain.pixels[i]);
    EXPECT_EQ(changed[0].pixels[2 * i + 1], i / (11 * 6));
  }
}

TEST(MiniBatchQueueByHand, WhatPreprocessingThrowsNextThrows) {
  MiniBatchQueueOptions options = queue_options();
  options.preprocess = [](MiniBatch& batch) {
    if (batch.index == 1) throw DataError("no second mini-batch");
  };
  MiniBatchQueue queue(cache_without_memory(std::make_shared<MemoryStore>(11, 3, 2, 1)), options);
  EXPECT_EQ(queue.next()->index, 0);
  EXPECT_EQ(message_of<DataError>([&] { queue.next(); }), "no second mini-batch");
}

TEST(MiniBatchQueueByHand, ARequestEndsTheWaitAndTheMiniBatchCanBeTakenLater) {
  const auto cache = cache_without_memory(std::make_shared<MemoryStore>(11, 3, 2, 1));
  std::atomic<bool> blocked = true, cancelled = false;
  MiniBatchQueueOptions options = queue_options();
  const Seen all = [&] {
    MiniBatchQueue queue(cache, options);
    return seen_of(queue);
  }();
  options.preprocess = [&](MiniBatch&) {
    while (blocked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  options.cancelled = [&] { return cancelled.load(); };
  MiniBatchQueue queue(cache, options);
  cancelled = true;
  EXPECT_THROW(queue.next(), Cancelled);
  EXPECT_THROW(queue.next(), Cancelled);
  cancelled = false;
  blocked = false;
  EXPECT_EQ(seen_of(queue), all);
}

TEST(OneHot, HasASingleOneInEachRow) {
  const std::vector<int32_t> labels = {2, 0, 1, 2};
  const Tensor rows = one_hot(labels, 3);
  EXPECT_EQ(rows.shape(), (Shape{4, 3}));
  EXPECT_EQ(rows.to_vector(), (std::vector<float>{0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(one_hot(std::vector<int32_t>{0}, 1).to_vector(), std::vector<float>{1});
  EXPECT_NE(message_of<InvalidArgument>([&] { one_hot(labels, 2); }).find("label 2 at index 0"),
            std::string::npos);
  EXPECT_THROW(one_hot(std::vector<int32_t>{-1}, 2), InvalidArgument);
  EXPECT_THROW(one_hot({}, 0), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
