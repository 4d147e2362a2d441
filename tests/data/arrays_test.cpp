// Float arrays in datastores, caches and mini-batches, and their statistics.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;

// n arrays of `shape` with various numbers, far from zero; classes in turn.
DatastorePtr some_arrays(int64_t n, const Shape& shape = {2, 3}) {
  ArrayBlock block{n, shape, {}};
  ImageLabels labels{.classes = {"a", "b", "c"}};
  for (int64_t i = 0; i < n * shape.elements(); ++i) {
    block.values.push_back(100 + static_cast<float>(i * i % 97) / 7);
  }
  for (int64_t i = 0; i < n; ++i) labels.labels.push_back(i % 3);
  return array_datastore(std::move(block), labels);
}

std::vector<float> array_of(const Datastore& store, int64_t index) {
  const Example example = store.read(index);
  EXPECT_EQ(example.content, store.content_digest(index));
  return std::get<Array>(example.inputs.at(0)).values;
}

TEST(Arrays, AreReadAsTheyWereGiven) {
  const DatastorePtr store =
      array_datastore(ArrayBlock{2, {3}, {1, 2, 3, 4, 5, 6}}, {.labels = {1, 0}});
  ASSERT_EQ(store->size(), 2);
  EXPECT_EQ(store->spec(), (ExampleSpec{{{ValueKind::array, Shape{3}}}}));
  EXPECT_EQ(array_of(*store, 1), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(store->label(0), 1);
  EXPECT_EQ(store->name(1), "observation 1");
  EXPECT_EQ(store->describe(), "2 arrays of 3 in memory");
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const DatastorePtr tensor =
      array_datastore(Tensor::from(std::span(values), {2, 3}), {.labels = {1, 0}});
  ThreadPool pool(2);
  EXPECT_EQ(listing_digest(*tensor, pool), listing_digest(*store, pool));
  EXPECT_EQ(message_of<Unsupported>([&] { read_image(*store, 1); }),
            "[datastore] observation 1 (2 arrays of 3 in memory) is not an image: the inputs are "
            "arrays of 3 floats");
}

TEST(Arrays, PartsAreThoseOfImages) {
  const DatastorePtr store = some_arrays(10);
  EXPECT_EQ(array_of(*subset(store, {7, 2}), 1), array_of(*store, 2));
  EXPECT_EQ(array_of(*partition(store, 3, 1), 0), array_of(*store, 4));
  const auto parts = split_each_label(store, {0.5}, 3);
  EXPECT_EQ(parts[0]->size() + parts[1]->size(), 10);
  EXPECT_EQ(parts[0]->spec(), store->spec());
  ThreadPool pool(2);
  EXPECT_EQ(readable_images(store, pool).store, store);
}

TEST(Arrays, ListingsDigestCoversElementsAndShape) {
  ThreadPool pool(2);
  const auto digest = [&](const Shape& shape, float first) {
    return listing_digest(*array_datastore(ArrayBlock{1, shape, {first, 2, 3, 4}}), pool);
  };
  EXPECT_EQ(digest({4}, 1), digest({4}, 1));
  EXPECT_NE(digest({4}, 1), digest({4}, std::nextafter(1.0f, 2.0f)));
  EXPECT_NE(digest({4}, 1), digest({2, 2}, 1));
}

TEST(Arrays, WhatCannotBeIsRefused) {
  const auto refusal = [](ArrayBlock block, ImageLabels labels = {}) {
    return message_of<InvalidArgument>([&] { array_datastore(std::move(block), labels); });
  };
  expect_says(refusal({2, {2}, {1, 2, 3}}), "a block of 3 floats for 2 arrays of 2");
  expect_says(refusal({-1, {2}, {}}), "-1 arrays of 2");
  expect_says(refusal({1, {}, {1}}), "no elements");
  expect_says(refusal({1, {0, 3}, {}}), "no elements");
  expect_says(refusal({2, {2}, {1, 2, 3, std::nanf("")}}), "observation 1: element 1 is nan");
  expect_says(refusal({1, {1}, {std::numeric_limits<float>::infinity()}}), "element 0 is inf");
  expect_says(refusal({2, {1}, {1, 2}}, {.labels = {1}}), "1 label for 2 arrays of 1");
  expect_says(refusal({1, {1}, {1}}, {.labels = {5}, .classes = {"a"}}), "observation 0 has the");
  expect_says(message_of<InvalidArgument>([] { array_datastore(Tensor::zeros({3})); }), "f32 of 3");
  expect_says(message_of<InvalidArgument>([] {
                array_datastore(Tensor::zeros({3, 2}, DType::i32));
              }),
              "received i32 of 3x2");
}

TEST(Arrays, WhatIsForImagesIsRefusedByName) {
  const DatastorePtr store = some_arrays(4);
  const std::string are =
      " is for images, but the observations (4 arrays of 2x3 in memory) are "
      "arrays of 2x3 floats";
  EXPECT_EQ(message_of<Unsupported>([&] { resized(store, 4, 4); }), "[resize]" + are);
  EXPECT_EQ(message_of<Unsupported>([&] { center_cropped(store, 1, 1); }), "[crop]" + are);
  EXPECT_EQ(message_of<Unsupported>([&] { transform(store, [](Image i) { return i; }); }),
            "[transform]" + are);
  EXPECT_EQ(message_of<Unsupported>([&] { ExampleCache(store, 2, 3, 1, 0); }),
            "[example cache]" + are);
  expect_says(message_of<InvalidArgument>([&] { ExampleCache(store, Shape{6}, 0); }),
              "expected arrays of 6 floats");
  const auto cache = std::make_shared<const ExampleCache>(store, Shape{2, 3}, 0);
  EXPECT_EQ(message_of<Unsupported>([&] {
              MiniBatchQueue(cache, {.mini_batch_size = 2, .augmentation = {.reflect_x = true}});
            }),
            "[augmentation] reflect_x" + are);
  EXPECT_EQ(message_of<Unsupported>([&] {
              MiniBatchQueue(cache, {.mini_batch_size = 2, .noise = {.salt_and_pepper = 0.1}});
            }),
            "[noise]" + are);
}

TEST(Arrays, MiniBatchesAreTheSameWhateverTheCacheAndTheThreads) {
  const DatastorePtr store = some_arrays(50);
  const DatastorePtr targets = some_arrays(50, {2});
  const auto batches = [&](size_t budget, int threads) {
    MiniBatchQueue queue(
        std::make_shared<const ExampleCache>(store, Shape{2, 3}, budget),
        {.mini_batch_size = 8,
         .drop_last = false,
         .seed = 4,
         .targets = std::make_shared<const ExampleCache>(targets, Shape{2}, budget),
         .threads = threads,
         .max_epochs = 2});
    std::vector<float> all;
    while (queue.has_data()) {
      const auto batch = queue.next();
      const std::span<const float> values = batch->input().values<float>();
      EXPECT_EQ(values.size(), static_cast<size_t>(batch->size()) * 6);
      for (size_t i = 0; i < batch->observations.size(); ++i) {
        const auto expected = array_of(*store, batch->observations[i]);
        EXPECT_EQ(std::memcmp(values.data() + 6 * i, expected.data(), 24), 0);
        EXPECT_EQ((*batch)["targets"].values<float>()[2 * i],
                  array_of(*targets, batch->observations[i])[0]);
        EXPECT_EQ(batch->labels()[i], batch->observations[i] % 3);
      }
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto expected = batches(1 << 20, 1);
  EXPECT_EQ(expected.size(), 2u * 50 * 6);
  EXPECT_EQ(batches(0, 3), expected);
  EXPECT_EQ(batches(24 * 7 + 5, 2), expected);
}

TEST(Arrays, StatisticsAreOfChannelsAndIndependentOfThreads) {
  const int64_t n = 1000;
  const DatastorePtr store = some_arrays(n);
  std::vector<ChannelSummary> expected(2);
  for (size_t c = 0; c < 2; ++c) {
    std::vector<double> values;
    for (int64_t i = 0; i < n; ++i) {
      const auto array = array_of(*store, i);
      for (size_t k = 0; k < 3; ++k) values.push_back(static_cast<double>(array[3 * c + k]));
    }
    double sum = 0, squares = 0;
    for (double v : values) sum += v;
    const double mean = sum / static_cast<double>(values.size());
    for (double v : values) squares += (v - mean) * (v - mean);
    expected[c].mean = mean;
    expected[c].standard_deviation = std::sqrt(squares / static_cast<double>(values.size()));
    expected[c].min = *std::min_element(values.begin(), values.end());
    expected[c].max = *std::max_element(values.begin(), values.end());
  }
  std::vector<ChannelSummary> first;
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const ExampleCache cache(store, Shape{2, 3}, threads == 2 ? 0 : 1 << 20);
    const auto contents = cache.fill(pool);
    EXPECT_EQ(contents.listing, listing_digest(*store, pool));
    const auto channels = contents.channels().at(0);
    ASSERT_EQ(channels.size(), 2u);
    if (first.empty()) first = channels;
    for (size_t c = 0; c < 2; ++c) {
      EXPECT_NEAR(channels[c].mean, expected[c].mean, 1e-11);
      EXPECT_NEAR(channels[c].standard_deviation, expected[c].standard_deviation, 1e-11);
      EXPECT_EQ(channels[c].min, expected[c].min);
      EXPECT_EQ(channels[c].max, expected[c].max);
      EXPECT_EQ(channels[c].mean, first[c].mean);
      EXPECT_EQ(channels[c].standard_deviation, first[c].standard_deviation);
    }
  }
}

TEST(Arrays, EqualElementsHaveNoDeviation) {
  ThreadPool pool(2);
  const ExampleCache cache(array_datastore(ArrayBlock{200, {3}, std::vector<float>(600, 0.1f)}),
                           Shape{3}, 0);
  const auto channels = cache.fill(pool).channels().at(0);
  ASSERT_EQ(channels.size(), 3u);
  for (const ChannelSummary& channel : channels) {
    EXPECT_EQ(channel.standard_deviation, 0);
    EXPECT_EQ(channel.mean, static_cast<double>(0.1f));
  }
}

}  // namespace
}  // namespace lockstep
