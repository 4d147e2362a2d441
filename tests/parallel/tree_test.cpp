#include "lockstep/parallel/reduce/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/parallel/reduce/partition.h"

namespace lockstep {
namespace {

constexpr size_t kCount = 37;

using Leaves = std::vector<std::vector<float>>;

// Values of very different magnitudes, so that different orders of addition round differently.
Leaves random_leaves(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  std::uniform_int_distribution<int> exponent(-12, 12);
  Leaves leaves(static_cast<size_t>(n), std::vector<float>(kCount));
  for (auto& leaf : leaves) {
    for (float& x : leaf) x = std::ldexp(value(random), exponent(random));
  }
  return leaves;
}

// The definition of the tree: a node over n leaves splits at the largest power of two below n.
std::vector<float> reference(const Leaves& leaves, size_t first, size_t n) {
  if (n == 1) return leaves[first];
  size_t left = 1;
  while (2 * left < n) left *= 2;
  std::vector<float> sum = reference(leaves, first, left);
  const std::vector<float> right = reference(leaves, first + left, n - left);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + right[i];
  return sum;
}

std::vector<float> result_of(const TreeReduction& tree) {
  return {tree.result(), tree.result() + kCount};
}

TEST(Tree, SplitsAtTheLargestPowerOfTwoBelow) {
  const std::vector<std::pair<int64_t, int64_t>> known{{2, 1}, {3, 2},  {4, 2},   {5, 4},  {8, 4},
                                                       {9, 8}, {16, 8}, {17, 16}, {40, 32}};
  for (const auto& [n, left] : known) EXPECT_EQ(tree_split(n), left) << n;
}

TEST(Tree, DoublesAreAddedInTheSameOrder) {
  EXPECT_EQ(tree_sum({}), 0);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (int n = 1; n <= 40; ++n) {
    std::vector<double> values(static_cast<size_t>(n));
    for (double& v : values) v = std::ldexp(normal(random), static_cast<int>(random() % 30));
    const std::function<double(size_t, size_t)> sum = [&](size_t first, size_t count) -> double {
      if (count == 1) return values[first];
      size_t left = 1;
      while (2 * left < count) left *= 2;
      return sum(first, left) + sum(first + left, count - left);
    };
    EXPECT_EQ(tree_sum(values), sum(0, values.size())) << n;
  }
}

// The additions as text: "(0+1)+2".
std::string written(int64_t first, int64_t n) {
  if (n == 1) return std::to_string(first);
  int64_t left = 1;
  while (2 * left < n) left *= 2;
  return "(" + written(first, left) + "+" + written(first + left, n - left) + ")";
}

TEST(Tree, SchedulesHaveTheSameAdditionsForAllMembers) {
  std::mt19937 random(5);
  for (int64_t leaves = 1; leaves <= 70; ++leaves) {
    for (const size_t members : {1, 2, 3, 5, 9}) {
      std::vector<double> loads(members);
      for (double& load : loads) load = static_cast<double>(random() % 4);
      loads[random() % members] = 1;
      const SumSchedule schedule(partition_shards(leaves, loads));
      ASSERT_EQ(schedule.leaves, leaves);
      std::vector<std::string> stack;
      for (const SumSchedule::Term& term : schedule.terms) {
        const IndexRange& of = schedule.subtrees[static_cast<size_t>(term.rank)][term.number];
        const IndexRange& own = schedule.ranges[static_cast<size_t>(term.rank)];
        EXPECT_TRUE(of.first >= own.first && of.end() <= own.end());
        stack.push_back(written(of.first, of.count));
        for (int k = 0; k < term.additions; ++k) {
          const std::string right = stack.back();
          stack.pop_back();
          stack.back() = "(" + stack.back() + "+" + right + ")";
        }
      }
      ASSERT_EQ(stack.size(), 1U);
      EXPECT_EQ(stack.back(), written(0, leaves));
    }
  }
}

// A sum of -0 stays -0: absent leaves contribute nothing, not +0.
TEST(Tree, NothingIsAddedToASingleLeaf) {
  TreeReduction tree(1);
  const float minus = -0.0f;
  tree.begin(1);
  EXPECT_TRUE(tree.add(0, &minus));
  EXPECT_TRUE(std::signbit(tree.result()[0]));
  tree.begin(3);
  for (int64_t leaf : {2, 0, 1}) tree.add(leaf, &minus);
  EXPECT_TRUE(std::signbit(tree.result()[0]));
  const double sum = tree_sum(std::vector<double>{-0.0});
  EXPECT_TRUE(std::signbit(sum));
}

TEST(Tree, AnyOrderOfArrivalGivesTheBitsOfTheFixedTree) {
  std::mt19937 random(7);
  TreeReduction tree(kCount);
  const float* const address = tree.result();
  for (int64_t n = 1; n <= 40; ++n) {
    const Leaves leaves = random_leaves(n, static_cast<unsigned>(n));
    const auto expected = reference(leaves, 0, leaves.size());
    std::vector<int64_t> order(leaves.size());
    std::iota(order.begin(), order.end(), 0);
    for (int round = 0; round < 12; ++round) {
      tree.begin(n);
      for (size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(tree.add(order[i], leaves[static_cast<size_t>(order[i])].data()),
                  i + 1 == order.size());
      }
      ASSERT_EQ(result_of(tree), expected) << n << " leaves, round " << round;
      if (round == 0) std::reverse(order.begin(), order.end());
      if (round > 0) std::shuffle(order.begin(), order.end(), random);
    }
  }
  EXPECT_EQ(tree.result(), address);
}

TEST(Tree, LeavesFromManyThreadsGiveTheBitsOfTheFixedTree) {
  TreeReduction tree(kCount);
  for (int round = 0; round < 60; ++round) {
    const int64_t n = 1 + round * 7 % 40;
    const Leaves leaves = random_leaves(n, static_cast<unsigned>(round));
    tree.begin(n);
    std::atomic<int64_t> next{0};
    std::atomic<int> completed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int64_t i = next++; i < n; i = next++) {
          const int64_t leaf = (i * 23 + round) % n;  // a permutation if 23 and n are coprime
          const int64_t chosen = n % 23 == 0 ? i : leaf;
          completed += tree.add(chosen, leaves[static_cast<size_t>(chosen)].data());
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(completed, 1);
    ASSERT_EQ(result_of(tree), reference(leaves, 0, leaves.size())) << n << " leaves";
  }
}

TEST(Tree, ASumThatWasAbandonedLeavesNothingBehind) {
  TreeReduction tree(kCount);
  const Leaves wrong = random_leaves(13, 1), right = random_leaves(13, 2);
  const auto fill = [&] {
    tree.begin(13);
    for (int64_t leaf = 12; leaf >= 0; --leaf) {
      tree.add(leaf, right[static_cast<size_t>(leaf)].data());
    }
  };
  const auto abandon = [&] {
    tree.begin(13);
    for (int64_t leaf : {0, 4, 2, 9, 12, 3}) {
      tree.add(leaf, wrong[static_cast<size_t>(leaf)].data());
    }
  };
  abandon();
  fill();
  EXPECT_EQ(result_of(tree), reference(right, 0, 13));
  const auto before = allocator_statistics();
  for (int round = 0; round < 20; ++round) {
    abandon();
    fill();
    ASSERT_EQ(result_of(tree), reference(right, 0, 13));
  }
  EXPECT_EQ(allocator_statistics().in_use, before.in_use) << "arrays of abandoned sums are lost";
  abandon();
  tree.begin(5);  // another number of leaves
  for (int64_t leaf = 0; leaf < 5; ++leaf) tree.add(leaf, right[static_cast<size_t>(leaf)].data());
  EXPECT_EQ(result_of(tree), reference(right, 0, 5));
  fill();
  EXPECT_EQ(result_of(tree), reference(right, 0, 13));
}

TEST(Tree, SumsOfDifferentSizesInTurnKeepNoMoreMemory) {
  TreeReduction tree(kCount);
  const Leaves leaves = random_leaves(16, 2);
  const auto sum = [&](int64_t n) {
    tree.begin(n);
    for (int64_t leaf = 0; leaf < n; ++leaf) {
      tree.add(leaf, leaves[static_cast<size_t>(leaf)].data());
    }
  };
  sum(16);
  const auto before = allocator_statistics();
  for (int round = 0; round < 20; ++round) {
    tree.begin(16);
    for (int64_t leaf : {0, 8}) tree.add(leaf, leaves[static_cast<size_t>(leaf)].data());
    sum(round % 2 ? 5 : 16);
  }
  EXPECT_EQ(allocator_statistics().in_use, before.in_use);
}

TEST(Tree, NoLeavesAreRefused) {
  TreeReduction tree(4);
  EXPECT_THROW(tree.begin(0), InvalidArgument);
  EXPECT_THROW(tree.begin(-1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
