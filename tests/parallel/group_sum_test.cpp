#include "lockstep/parallel/reduce/group_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/parallel/reduce/partition.h"
#include "tests/parallel/groups.h"

namespace lockstep {
namespace {

// Every process can compute these values.
std::vector<float> leaf_values(int64_t leaf, size_t count) {
  std::mt19937 random(static_cast<unsigned>(leaf + 1));
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(value(random), static_cast<int>(i % 25) - 12);
  }
  return values;
}

std::vector<float> whole_sum(int64_t leaves, size_t count) {
  TreeReduction tree(count);
  tree.begin(leaves);
  for (int64_t j = leaves - 1; j >= 0; --j) tree.add(j, leaf_values(j, count).data());
  return {tree.result(), tree.result() + count};
}

void poison(float* values, size_t count) {
  std::fill_n(values, count, std::numeric_limits<float>::quiet_NaN());
}

// Fills the sum that all members have read, so that elements are noticed which the next one does
// not write. Members of a LocalGroup share it.
template <class G>
void poison_sum(G& group, GroupSum& sum, size_t count) {
  if (!std::is_same_v<G, LocalGroup> || group.size() == 1) return poison(sum.result(), count);
  group.barrier(TimeLimit(30));
  if (group.rank() == 0) poison(sum.result(), count);
}

template <class G>
void sum_and_compare(G& group, const GroupSumOptions& options, const std::vector<double>& loads,
                     int threads) {
  ThreadPool pool(threads);
  GroupSum sum(group, pool, options);
  int sums = 0;
  for (const int64_t leaves :
       {options.most_leaves, options.most_leaves / 2 + 1, int64_t{1}, options.most_leaves}) {
    const auto ranges = partition_shards(leaves, loads);
    sum.begin(std::make_shared<SumSchedule>(ranges));
    // Nobody reads them any more.
    for (const GroupSum::Partial& partial : sum.partials()) poison(partial.sum, options.count);
    for (int64_t j = 0; j < leaves; ++j)
      std::memset(sum.own_leaf_metadata(j), 0xff, options.leaf_metadata_bytes);
    const IndexRange own = ranges[static_cast<size_t>(group.rank())];
    for (int64_t i = own.count - 1; i >= 0; --i) {
      const int64_t j = own.first + i;
      std::memset(sum.own_leaf_metadata(j), static_cast<int>(j + 3), options.leaf_metadata_bytes);
      sum.add(j, leaf_values(j, options.count).data());
    }
    if (options.member_metadata_bytes > 0) {
      std::memset(sum.own_member_metadata(), group.rank() + 5, options.member_metadata_bytes);
    }
    sum.finish(TimeLimit(30));
    for (int r = 0; r < group.size(); ++r) {
      for (size_t b = 0; b < options.member_metadata_bytes; ++b) {
        if (sum.member_metadata(r)[b] != static_cast<std::byte>(r + 5))
          throw InternalError("other words");
      }
    }
    const auto expected = whole_sum(leaves, options.count);
    // Members may share the sum. It must stay while a late one reads it.
    if (group.rank() == leaves % group.size()) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    if (std::memcmp(sum.result(), expected.data(), options.count * sizeof(float)) != 0) {
      throw InternalError("another sum");
    }
    for (int64_t j = 0; j < leaves; ++j) {
      for (size_t b = 0; b < options.leaf_metadata_bytes; ++b) {
        if (sum.leaf_metadata(j)[b] != static_cast<std::byte>(j + 3))
          throw InternalError("other words");
      }
    }
    // Not always, because members that wait here are not late for the next sum.
    if (++sums % 2 == 1) poison_sum(group, sum, options.count);
  }
}

TEST(GroupSum, TheSameBitsForEveryPartition) {
  const std::vector<std::vector<double>> loads{
      {1}, {1, 1}, {3, 1}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1, 0, 1}, {1, 2, 3, 4, 5, 6, 7, 8}};
  for (const auto& load : loads) {
    for (const size_t count : {size_t{1}, size_t{1023}, size_t{5000}, size_t{70001}}) {
      for (const int64_t leaves : {1, 2, 7, 16, 23}) {
        const GroupSumOptions sum{.count = count, .most_leaves = leaves, .leaf_metadata_bytes = 5};
        const auto members = static_cast<int>(load.size());
        const LocalGroupOptions options{.size = members,
                                        .window_bytes = GroupSum::window_bytes(sum, members)};
        const int failed = testing::on_threads(options, [&](LocalGroup& group) {
          sum_and_compare(group, sum, load, 1 + group.rank() % 2);
        });
        EXPECT_EQ(failed, 0) << members << " members, " << count << " floats, " << leaves;
      }
    }
  }
}

TEST(GroupSum, ProcessesToo) {
  const GroupSumOptions sum{.count = 70001, .most_leaves = 15, .leaf_metadata_bytes = 40};
  const LocalGroupOptions options{.size = 3, .window_bytes = GroupSum::window_bytes(sum, 3)};
  EXPECT_EQ(testing::on_processes(options,
                                  [&](LocalGroup& group) {
                                    sum_and_compare(group, sum, {2, 1, 1}, 2);
                                  }),
            0);
}

// Sums by messages, over hosts and over processes of hosts, have the bits of sums by shared memory.
TEST(GroupSum, OfHosts) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  for (const size_t count : {size_t{1}, size_t{5000}, size_t{70001}}) {
    const GroupSumOptions sum{
        .count = count, .most_leaves = 15, .leaf_metadata_bytes = 40, .member_metadata_bytes = 9};
    const auto body = [&](Group& group, const std::vector<double>& loads) {
      sum_and_compare(group, sum, loads, 2);
    };
    EXPECT_EQ(testing::on_hosts(3, [&](Group& g) { body(g, {2, 1, 1}); }), 0);
    EXPECT_EQ(testing::on_hosts_of_processes({1, 3, 1},
                                             [&](Group& g) {
                                               body(g, {2, 1, 0, 1, 3});
                                             }),
              0);
    // Bytes of partial sums and slices go through other members.
    const auto in_two_steps = [](HostGroupOptions& o) { o.most_direct = 1; };
    EXPECT_EQ(testing::on_hosts(
                  5,
                  [&](Group& g) {
                    body(g, {2, 1, 0, 1, 3});
                  },
                  in_two_steps),
              0);
  }
}

// Operands are the leaves' values; an update range of the sum is computed from those of all leaves.
constexpr size_t kUpdateRangeOfTest = 1000;

float* operand_of(const GroupSum& sum, int64_t leaf, size_t count) {
  return reinterpret_cast<float*>(sum.operands()) + static_cast<size_t>(leaf) * count;
}

void compute_range(GroupSum& sum, int64_t leaves, int64_t range, size_t count) {
  const size_t first = static_cast<size_t>(range) * kUpdateRangeOfTest;
  const size_t size = std::min(kUpdateRangeOfTest, count - first);
  TreeReduction tree(size);
  tree.begin(leaves);
  for (int64_t j = 0; j < leaves; ++j) tree.add(j, operand_of(sum, j, count) + first);
  std::copy_n(tree.result(), size, sum.shared_sum() + first);
}

// In every third sum members exchange partial sums.
void sum_update_ranges_and_compare(LocalGroup& group, const GroupSumOptions& options,
                                   const std::vector<double>& loads) {
  ThreadPool pool(1);
  GroupSum sum(group, pool, options);
  for (int64_t i = 1; i <= 12; ++i) {
    const int64_t leaves = options.most_leaves - i % 2;
    const auto ranges = partition_shards(leaves, loads);
    sum.begin(std::make_shared<SumSchedule>(ranges));
    const IndexRange own = ranges[static_cast<size_t>(group.rank())];
    for (int64_t j = own.first; j < own.end(); ++j) {
      std::memset(sum.own_leaf_metadata(j), static_cast<int>(i + j), options.leaf_metadata_bytes);
      const std::vector<float> values = leaf_values(100 * i + j, options.count);
      if (i % 3 == 0) {
        sum.add(j, values.data());
      } else {
        std::copy(values.begin(), values.end(), operand_of(sum, j, options.count));
      }
    }
    if (i % 3 == 0) {
      sum.finish(TimeLimit(30));
    } else {
      sum.exchange_operands(TimeLimit(30));
      if (i % 4 == 1) {  // all have read the sum before
        if (group.rank() == 0) poison(sum.shared_sum(), options.count);
        group.barrier(TimeLimit(30));
      }
      for (int64_t range = 0; range < options.update_ranges; ++range) {
        const int64_t k = (range + group.rank()) % options.update_ranges;
        if (!sum.claim(k)) continue;
        if (sum.claim(k)) throw InternalError("an update range was claimed twice");
        compute_range(sum, leaves, k, options.count);
        if (sum.published(k)) throw InternalError("an update range was published before its time");
        sum.publish(k);
      }
      sum.finish_update_ranges(TimeLimit(30));
      for (int64_t range = 0; range < options.update_ranges; ++range) {
        if (!sum.published(range)) throw InternalError("an update range is missing");
      }
      // All update ranges are computed, so the operands of this sum are not read again.
      if (group.rank() == 0) {
        poison(operand_of(sum, 0, options.count),
               options.count * static_cast<size_t>(options.most_leaves));
      }
    }
    TreeReduction expected(options.count);
    expected.begin(leaves);
    for (int64_t j = 0; j < leaves; ++j) {
      expected.add(j, leaf_values(100 * i + j, options.count).data());
      for (size_t b = 0; b < options.leaf_metadata_bytes; ++b) {
        if (sum.leaf_metadata(j)[b] != static_cast<std::byte>(i + j))
          throw InternalError("other words");
      }
    }
    // A late member still reads the sum.
    if (group.rank() == i % group.size()) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    if (std::memcmp(sum.result(), expected.result(), options.count * sizeof(float)) != 0) {
      throw InternalError("another sum");
    }
  }
}

TEST(GroupSum, MembersDivideUpdateRanges) {
  for (const auto& load : std::vector<std::vector<double>>{{1, 1}, {3, 1}, {1, 0, 1}, {1, 2, 3}}) {
    const size_t count = 10'500;
    const GroupSumOptions sum{.count = count,
                              .most_leaves = 9,
                              .leaf_metadata_bytes = 5,
                              .operand_bytes = 9 * count * sizeof(float),
                              .update_ranges = 11};
    const auto members = static_cast<int>(load.size());
    const LocalGroupOptions options{.size = members,
                                    .window_bytes = GroupSum::window_bytes(sum, members)};
    EXPECT_EQ(
        testing::on_threads(
            options, [&](LocalGroup& group) { sum_update_ranges_and_compare(group, sum, load); }),
        0);
    EXPECT_EQ(
        testing::on_processes(
            options, [&](LocalGroup& group) { sum_update_ranges_and_compare(group, sum, load); }),
        0);
  }
}

TEST(GroupSum, MembersMustChooseTheSameWay) {
  const GroupSumOptions sum{.count = 8, .most_leaves = 2, .operand_bytes = 64, .update_ranges = 1};
  const LocalGroupOptions options{.size = 2, .window_bytes = GroupSum::window_bytes(sum, 2)};
  const auto ranges = partition_shards(2, std::vector<double>{1, 1});
  std::atomic<int> refused = 0;
  testing::on_threads(options, [&](LocalGroup& group) {
    ThreadPool pool(1);
    GroupSum both(group, pool, sum);
    both.begin(std::make_shared<SumSchedule>(ranges));
    const std::vector<float> ones(8, 1);
    if (group.rank() == 1) both.add(1, ones.data());
    try {
      group.rank() == 0 ? both.exchange_operands(TimeLimit(5)) : both.finish(TimeLimit(5));
    } catch (const InternalError&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

TEST(GroupSum, WithoutOperandsOrSharedMemoryThereIsOneWay) {
  auto members = LocalGroup::of_threads({.size = 1});
  ThreadPool pool(1);
  EXPECT_EQ(GroupSum(*members[0], pool, {.count = 4}).operands(), nullptr);
}

TEST(GroupSum, WindowsThatAreTooSmallAreRefused) {
  const GroupSumOptions sum{.count = 100, .most_leaves = 2};
  const size_t needed = GroupSum::window_bytes(sum, 2);
  for (const size_t less : {size_t{0}, size_t{1}, needed}) {
    auto members = LocalGroup::of_threads({.size = 2, .window_bytes = needed - less});
    ThreadPool pool(1);
    if (less == 0) {
      EXPECT_NO_THROW(GroupSum(*members[0], pool, sum));
    } else {
      EXPECT_THROW(GroupSum(*members[0], pool, sum), InvalidArgument);
    }
  }
}

TEST(GroupSum, MoreLeavesThanPlannedAreRefused) {
  auto members = LocalGroup::of_threads({.size = 1});
  ThreadPool pool(1);
  GroupSum sum(*members[0], pool, {.count = 4, .most_leaves = 2});
  EXPECT_THROW(
      sum.begin(std::make_shared<SumSchedule>(partition_shards(3, std::vector<double>{1}))),
      InvalidArgument);
}

}  // namespace
}  // namespace lockstep
