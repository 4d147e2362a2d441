// Mini-batch queues of small images, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "tests/data/support.h"

namespace lockstep::testing {

inline std::shared_ptr<const ExampleCache> cache_of(std::shared_ptr<MemoryStore> store,
                                                    size_t budget = 1 << 20) {
  const Image& first = store->images[0];
  return std::make_shared<ExampleCache>(store, first.height, first.width, first.channels, budget);
}

inline std::shared_ptr<const ExampleCache> small_cache(int64_t n = 23, size_t budget = 1 << 20) {
  return cache_of(std::make_shared<MemoryStore>(n, 5, 4, 3), budget);
}

inline MiniBatchQueueOptions awkward() {
  MiniBatchQueueOptions options;
  options.mini_batch_size = 5;
  options.drop_last = false;
  options.seed = 42;
  options.max_epochs = 3;
  options.augmentation.reflect_x = true;
  options.augmentation.translate_x = {-2, 2};
  options.augmentation.translate_y = {-1, 3};
  return options;
}

template <class T>
std::vector<T> copy_of(const RowArray& array) {
  const std::span<const T> values = array.values<T>();
  return {values.begin(), values.end()};
}

inline std::vector<MiniBatch> drain(MiniBatchQueue& queue) {
  std::vector<MiniBatch> all;
  while (queue.has_data()) all.push_back(*queue.next());
  return all;
}

inline void expect_equal(const std::vector<MiniBatch>& a, const std::vector<MiniBatch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].epoch, b[i].epoch);
    EXPECT_EQ(a[i].index, b[i].index);
    EXPECT_EQ(a[i].observations, b[i].observations);
    EXPECT_EQ(a[i].arrays, b[i].arrays);
    EXPECT_EQ(a[i].observations_digest, b[i].observations_digest);
  }
}

}  // namespace lockstep::testing
