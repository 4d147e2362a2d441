#include "lockstep/parallel/reduce/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"

namespace lockstep {
namespace {

std::vector<int64_t> counts(int64_t leaves, const std::vector<double>& loads) {
  std::vector<int64_t> all;
  int64_t at = 0;
  for (const IndexRange& run : partition_shards(leaves, loads)) {
    if (run.count > 0) {
      EXPECT_EQ(run.first, at);
    }
    at += run.count;
    all.push_back(run.count);
  }
  EXPECT_EQ(at, leaves);
  return all;
}

using Counts = std::vector<int64_t>;

TEST(Partition, FollowsTheLoads) {
  EXPECT_EQ(counts(8, {1}), Counts({8}));
  EXPECT_EQ(counts(8, {1, 1}), Counts({4, 4}));
  EXPECT_EQ(counts(16, {3, 1}), Counts({12, 4}));
  EXPECT_EQ(counts(8, {1, 0, 1}), Counts({4, 0, 4}));
  EXPECT_EQ(counts(15, {1, 1, 1, 0, 1}), Counts({4, 4, 4, 0, 3}));
  EXPECT_EQ(counts(0, {1, 1}), Counts({0, 0}));
  EXPECT_EQ(counts(2, {1, 0, 1, 1}), Counts({1, 0, 1, 0}));
}

TEST(Partition, EveryMemberWithALoadGetsWork) {
  for (int64_t leaves = 1; leaves <= 40; ++leaves) {
    for (size_t workers = 1; workers <= 8; ++workers) {
      std::vector<double> loads(workers, 1);
      loads[0] = 100;
      const Counts partition = counts(leaves, loads);
      const auto idle = std::count(partition.begin(), partition.end(), 0);
      EXPECT_EQ(idle, std::max<int64_t>(0, static_cast<int64_t>(workers) - leaves));
    }
  }
}

// Compares with all possible partitions.
TEST(Partition, TheSlowestIsAsFastAsCanBeAndFewSumsRemain) {
  for (int64_t leaves = 3; leaves <= 17; ++leaves) {
    const std::vector<double> loads{1, 2, 1};
    double best_time = 1e9;
    size_t best_sums = 1000;
    const auto sums = [&](int64_t a, int64_t b) {
      return complete_subtrees(leaves, {0, a}).size() + complete_subtrees(leaves, {a, b}).size() +
             complete_subtrees(leaves, {a + b, leaves - a - b}).size();
    };
    const auto time = [&](int64_t a, int64_t b) {
      return std::max({static_cast<double>(a), static_cast<double>(b) / 2,
                       static_cast<double>(leaves - a - b)});
    };
    for (int64_t a = 1; a < leaves; ++a) {
      for (int64_t b = 1; a + b < leaves; ++b) {
        if (time(a, b) > best_time) continue;
        if (time(a, b) < best_time) best_sums = 1000;
        best_time = time(a, b);
        best_sums = std::min(best_sums, sums(a, b));
      }
    }
    const Counts partition = counts(leaves, loads);
    EXPECT_EQ(time(partition[0], partition[1]), best_time) << leaves;
    EXPECT_EQ(sums(partition[0], partition[1]), best_sums) << leaves;
  }
}

TEST(Partition, CountsPartialSumsAsTheTreeHasThem) {
  for (int64_t leaves = 1; leaves <= 70; ++leaves) {
    for (int64_t first = 0; first < leaves; ++first) {
      for (int64_t count = 0; first + count <= leaves; ++count) {
        const IndexRange range{first, count};
        ASSERT_EQ(partial_sums(leaves, range),
                  static_cast<int64_t>(complete_subtrees(leaves, range).size()))
            << leaves << ": " << first << " + " << count;
      }
    }
  }
}

// A search over all partitions would take minutes and gigabytes.
TEST(Partition, OfThousandsOfWorkersIsFast) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<double> equal(4096, 1);
  std::vector<double> several = equal;
  for (size_t w = 0; w < several.size(); ++w) several[w] = 0.5 + static_cast<double>(w % 7);
  for (const int64_t leaves : {4096, 5000, 8192, 16384, 100000}) {
    const Counts even = counts(leaves, equal);
    EXPECT_EQ(*std::max_element(even.begin(), even.end()), (leaves + 4095) / 4096);
    EXPECT_GE(*std::min_element(even.begin(), even.end()), 1);
    counts(leaves, several);
  }
  counts(100000, {1, 2, 1, 3});  // few workers with many leaves
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 20) << "too slow";
}

TEST(Partition, RefusesLoadsThatAreNone) {
  EXPECT_THROW(partition_shards(4, {}), InvalidArgument);
  EXPECT_THROW(partition_shards(4, std::vector<double>{0, 0}), InvalidArgument);
  EXPECT_THROW(partition_shards(4, std::vector<double>{1, -1}), InvalidArgument);
  EXPECT_THROW(partition_shards(4, std::vector<double>{1, std::nan("")}), InvalidArgument);
}

TEST(UpdateRanges, AreDividedByTheShares) {
  EXPECT_EQ(divide_update_ranges(std::vector<int64_t>{5, 5, 5, 5}, std::vector<int64_t>{1, 1}),
            (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(divide_update_ranges(std::vector<int64_t>{8, 2, 2, 2, 2}, std::vector<int64_t>{4, 4}),
            (std::vector<int>{0, 1, 1, 1, 1}));
  const std::vector<int64_t> shares{3, 0, 1};
  std::vector<int64_t> sizes(101, 48), done(3, 0);
  sizes.back() = 7;
  const std::vector<int> workers = divide_update_ranges(sizes, shares);
  for (size_t i = 0; i < sizes.size(); ++i) done[static_cast<size_t>(workers[i])] += sizes[i];
  EXPECT_EQ(done[1], 0);
  EXPECT_NEAR(static_cast<double>(done[0]) / static_cast<double>(done[2]), 3, 0.2);
  EXPECT_THROW(divide_update_ranges(sizes, std::vector<int64_t>{0, 0}), InvalidArgument);
}

TEST(SumSchedules, AreMadeOnceForEachNumberOfLeaves) {
  const std::vector<double> loads{2, 0, 1};
  SumSchedules schedules(loads);
  const auto seven = schedules.of(7);
  EXPECT_EQ(seven->ranges, partition_shards(7, loads));
  EXPECT_EQ(schedules.of(6)->ranges, partition_shards(6, loads));
  EXPECT_EQ(schedules.of(7), seven);
}

}  // namespace
}  // namespace lockstep
