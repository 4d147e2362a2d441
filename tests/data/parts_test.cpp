// Parts of listings: groups, times, copies of images, and epochs with balanced classes.
#include "lockstep/data/datastores/parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/images/copies.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::awkward;
using testing::cache_of;
using testing::drain;
using testing::expect_equal;
using testing::MemoryStore;

std::vector<int64_t> sizes_of(const Parts& parts, size_t count) {
  std::vector<int64_t> sizes(count);
  for (const int64_t part : parts) ++sizes.at(static_cast<size_t>(part));
  return sizes;
}

TEST(Parts, GroupsStayTogetherAndEachPartHasItsShare) {
  const MemoryStore store(3000, 1, 1, 1);
  std::vector<int64_t> groups;  // of very different sizes
  for (int64_t i = 0; i < store.size(); ++i) groups.push_back(i < 300 ? 0 : (i * i) % 97);
  std::map<int64_t, int64_t> numbers;
  for (int64_t& g : groups) g = numbers.emplace(g, std::ssize(numbers)).first->second;
  const std::vector<double> shares{0.2, 0.1, 0.7};
  const Parts parts = parts_of_groups(store, groups, shares, 3);
  std::map<int64_t, std::set<int64_t>> of_group;
  for (size_t i = 0; i < parts.size(); ++i) of_group[groups[i]].insert(parts[i]);
  for (const auto& [group, in] : of_group) EXPECT_EQ(in.size(), 1u) << group;
  const std::vector<int64_t> sizes = sizes_of(parts, 3);
  for (size_t p = 0; p < 3; ++p) {
    EXPECT_NEAR(static_cast<double>(sizes[p]), shares[p] * 3000, 150) << p;
  }
  EXPECT_EQ(parts, parts_of_groups(store, groups, shares, 3));
  EXPECT_NE(parts, parts_of_groups(store, groups, shares, 4));
  EXPECT_THROW(parts_of_groups(store, {0, 1}, shares, 3), InvalidArgument);
}

TEST(Parts, GroupsOfOneAreDealtLikeStratifiedFolds) {
  const MemoryStore store(32, 1, 1, 1);  // labels: 11, 11, 10
  std::vector<int64_t> groups(32);
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int64_t>(i);
  const Parts parts = parts_of_groups(store, groups, std::vector<double>(5, 0.2), 1);
  for (const int64_t size : sizes_of(parts, 5)) EXPECT_NEAR(static_cast<double>(size), 6.4, 2);
  for (int64_t label = 0; label < 3; ++label) {
    std::vector<int64_t> counts(5);
    for (int64_t i = 0; i < 32; ++i) {
      if (store.label(i) == label) ++counts[static_cast<size_t>(parts[static_cast<size_t>(i)])];
    }
    EXPECT_LE(*std::ranges::max_element(counts) - *std::ranges::min_element(counts), 1) << label;
  }
  // As many groups as parts: none is empty.
  std::vector<int64_t> few(32);
  for (size_t i = 0; i < few.size(); ++i) few[i] = i < 28 ? 0 : static_cast<int64_t>(i) - 27;
  const Parts each = parts_of_groups(store, few, std::vector<double>(5, 0.2), 1);
  for (const int64_t size : sizes_of(each, 5)) EXPECT_GT(size, 0);
}

RowTime at(double value) { return {value, 0, false}; }

TEST(Parts, TheLastByTimeAreHeldOutAndTiesStayTogether) {
  const std::vector<RowTime> times{at(5), at(1), at(3), at(2), at(4),
                                   at(9), at(8), at(7), at(6), at(10)};
  EXPECT_EQ(parts_by_time(times, {0.2, 0.1}), (Parts{2, 2, 2, 2, 2, 0, 0, 2, 2, 1}));
  EXPECT_EQ(parts_by_time(times, {0, 0}), Parts(10, 2));
  // Three equal times around the cut: the part begins after them, or with them if it is empty.
  const std::vector<RowTime> ties{at(1), at(2), at(3), at(3), at(3), at(4)};
  EXPECT_EQ(parts_by_time(ties, {0.34}), (Parts{1, 1, 1, 1, 1, 0}));
  const std::vector<RowTime> last{at(1), at(2), at(3), at(3), at(3)};
  EXPECT_EQ(parts_by_time(last, {0.2}), (Parts{1, 1, 0, 0, 0}));
  EXPECT_EQ(parts_by_time({at(1), at(1)}, {0.5}), (Parts{0, 0}));
  EXPECT_EQ(parts_by_time({}, {0.5}), Parts());
  EXPECT_THROW(parts_by_time(times, {0.6, 0.6}), InvalidArgument);
}

TEST(Parts, TimesAreNumbersOrDatesOfIso8601) {
  EXPECT_EQ(parse_row_time("1e3"), at(1000));
  EXPECT_EQ(parse_row_time("+7"), at(7));
  EXPECT_EQ(parse_row_time("1700000000.25"), at(1700000000.25));
  EXPECT_EQ(parse_row_time("1970-01-02")->value, 86400);
  EXPECT_EQ(parse_row_time("2024-02-29T23:59:59Z")->value, 1709251199);  // date -d ... +%s
  EXPECT_EQ(parse_row_time("2024-02-29 23:59:59.5")->nanoseconds, 500'000'000);
  EXPECT_EQ(parse_row_time("2024-03-01T00:59+01:00"), parse_row_time("2024-02-29T23:59"));
  EXPECT_EQ(parse_row_time("2024-02-29T22:59-0100"), parse_row_time("2024-02-29T23:59"));
  EXPECT_LT(*parse_row_time("1969-12-31T23:59:59.999999999"), *parse_row_time("1970-01-01"));
  for (const char* wrong : {"", "nan", "inf", "2023-02-29", "2024-13-01", "2024-1-1", "2024-01-01T",
                            "2024-01-01T25:00", "2024-01-01x", "1,5", "yesterday", "12 "}) {
    EXPECT_FALSE(parse_row_time(wrong)) << wrong;
  }
}

TEST(Parts, CopiesOfImagesAreFoundByTheirBytes) {
  const testing::TemporaryFolder folder;
  const auto bytes = [](size_t n, int changed) {
    std::vector<std::byte> all(n, std::byte{7});
    if (changed >= 0) all[static_cast<size_t>(changed)] = std::byte{8};
    return all;
  };
  // Nothing is decoded, so these need not be images.
  const std::vector<std::pair<const char*, std::vector<std::byte>>> files{
      {"a/1.png", bytes(20000, -1)},
      {"a/2.png", bytes(20000, 3)},
      {"a/3.png", bytes(300, -1)},
      {"b/1.png", bytes(20000, -1)},
      {"b/2.png", bytes(300, 9)},
      {"b/3.png", bytes(20000, 10000)},
      {"b/4.png", bytes(300, -1)},
      {"b/5.png", bytes(20000, -1)},
      {"b/6.png", {}},
      {"b/7.png", {}}};
  class Named final : public MemoryStore {
   public:
    using MemoryStore::MemoryStore;
    std::string name(int64_t index) const override { return names.at(static_cast<size_t>(index)); }
    std::vector<std::string> names;
  } named(11, 1, 1, 1);
  for (const auto& [name, contents] : files) {
    folder.write(name, contents);
    named.names.emplace_back(name);
  }
  named.names.emplace_back("b/missing.png");
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(first_copies(named, folder.path, pool),
              (std::vector<int64_t>{0, 1, 2, 0, 4, 5, 2, 0, 8, 8, 10}));
  }
}

TEST(Balanced, EpochsDrawEachClassEquallyOftenInShuffledRounds) {
  // 300 observations: classes 0, 1 and 2 with 240, 50 and 10.
  class Skewed final : public MemoryStore {
   public:
    using MemoryStore::MemoryStore;
    int64_t label(int64_t i) const override { return i < 240 ? 0 : i < 290 ? 1 : 2; }
  };
  const auto store = std::make_shared<Skewed>(300, 2, 2, 1);
  MiniBatchQueueOptions options;
  options.mini_batch_size = 300;
  options.balanced = true;
  options.seed = 5;
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const std::vector<int64_t> drawn = observations_of(*store, options, epoch);
    ASSERT_EQ(drawn.size(), 300u);
    orders.insert(drawn);
    std::vector<int64_t> counts(3), times(300);
    for (const int64_t i : drawn) {
      ++counts[static_cast<size_t>(store->label(i))];
      ++times[static_cast<size_t>(i)];
    }
    // Five standard deviations of a binomial distribution.
    for (const int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 100, 41);
    const std::pair<int64_t, int64_t> ranges[] = {{0, 240}, {240, 290}, {290, 300}};
    for (const auto& [first, end] : ranges) {
      const auto [least, most] = std::minmax_element(times.begin() + first, times.begin() + end);
      EXPECT_LE(*most - *least, 1);
    }
  }
  EXPECT_EQ(orders.size(), 5u);
  options.shuffle = Shuffle::once;
  EXPECT_EQ(observations_of(*store, options, 0), observations_of(*store, options, 4));
  options.shuffle = Shuffle::never;
  EXPECT_THROW(observations_of(*store, options, 0), InvalidArgument);
}

TEST(Balanced, MiniBatchesDoNotDependOnThreadsAndRepetitionsAreAugmentedDifferently) {
  class OneRare final : public MemoryStore {
   public:
    using MemoryStore::MemoryStore;
    int64_t label(int64_t i) const override { return i == 0 ? 1 : 0; }
  };
  const auto run = [](int threads, int64_t first_epoch, int64_t first_batch) {
    MiniBatchQueueOptions options = awkward();
    options.balanced = true;
    options.threads = threads;
    MiniBatchQueue queue(cache_of(std::make_shared<OneRare>(23, 5, 4, 3)), options, first_epoch,
                         first_batch);
    return drain(queue);
  };
  const std::vector<MiniBatch> all = run(1, 0, 0);
  for (const int threads : {2, 5}) expect_equal(run(threads, 0, 0), all);
  const std::vector<MiniBatch> resumed = run(3, 1, 2);
  expect_equal(resumed, {all.end() - std::ssize(resumed), all.end()});
  std::set<std::vector<uint8_t>> seen;
  int64_t times = 0;
  for (const MiniBatch& batch : all) {
    if (batch.epoch > 0) continue;
    const std::vector<uint8_t> pixels = testing::copy_of<uint8_t>(batch.input());
    for (size_t row = 0; row < batch.observations.size(); ++row) {
      if (batch.observations[row] != 0) continue;
      EXPECT_EQ(batch.repetitions[row], times++);
      const auto first = pixels.begin() + static_cast<int64_t>(row) * 60;
      seen.insert({first, first + 60});
    }
  }
  EXPECT_GE(times, 5);
  EXPECT_GE(seen.size(), 3u);
}

}  // namespace
}  // namespace lockstep
