#include "lockstep/parallel/reduce/merge_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {
namespace {

// The text shows the structure of all merges.
void merge_texts(std::string& left, std::string& right) { left = "(" + left + right + ")"; }

TEST(MergeTree, IsTheFixedTreeInAnyOrder) {
  const std::vector<std::string> expected{"a", "(ab)", "((ab)c)", "((ab)(cd))", "(((ab)(cd))e)"};
  for (int64_t leaves = 1; leaves <= 5; ++leaves) {
    std::vector<int64_t> order(static_cast<size_t>(leaves));
    std::iota(order.begin(), order.end(), 0);
    do {
      MergeTree<std::string> tree(leaves, merge_texts);
      for (int64_t leaf : order) tree.add(leaf, std::string(1, static_cast<char>('a' + leaf)));
      ASSERT_EQ(tree.take(), expected[static_cast<size_t>(leaves - 1)]);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(MergeTree, SumsAreTreeSumsForAnyThreads) {
  constexpr int64_t leaves = 1001;
  std::vector<double> values;
  for (int64_t i = 0; i < leaves; ++i) values.push_back(1.0 / static_cast<double>(3 * i + 1));
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    MergeTree<double> tree(leaves, [](double& left, double& right) { left += right; });
    pool.for_each(leaves, [&](int64_t i, int) { tree.add(i, values[static_cast<size_t>(i)]); });
    EXPECT_EQ(tree.take(), tree_sum(values));
  }
}

TEST(MergeTree, MissingLeavesAreReported) {
  EXPECT_THROW(MergeTree<int>(0, {}), InvalidArgument);
  MergeTree<int> tree(2, [](int& left, int& right) { left += right; });
  tree.add(1, 5);
  EXPECT_THROW(tree.take(), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
