// Products of matrices and gradients of weights: their bits are those that their headers describe,
// for any number of rows, any division of shards, and every instruction set.
#include "lockstep/engine/kernels/cpu/matrices/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/matrices/blocked_products.h"
#include "lockstep/engine/kernels/cpu/matrices/panels.h"
#include "lockstep/engine/kernels/cpu/matrices/shard_gradients.h"
#include "lockstep/engine/kernels/interface/pass_threads.h"
#include "lockstep/engine/kernels/interface/update_ranges.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest {
namespace {

using namespace kernels;
using namespace kernels::cpu;

using Values = std::vector<float>;
template <class T>
using Numbers = std::vector<T>;

template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_bfloat16(x);
  }
}
template <class T>
Numbers<T> rounded(const Values& values) {
  Numbers<T> all;
  for (const float value : values) all.push_back(rounded<T>(value));
  return all;
}

// Numbers whose products round.
Values values(int64_t count, uint32_t seed) {
  Values values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
  }
  return values;
}
template <class T>
Numbers<T> numbers(int64_t count, uint32_t seed) {
  return rounded<T>(values(count, seed));
}

template <class T>
float at(const Numbers<T>& of, int64_t i) {
  return to_float(of[static_cast<size_t>(i)]);
}

// The sum that products.h describes: blocks of fused multiplications and additions, for bf16 in
// pairs whose second product comes first.
template <class T>
float sum_of_products(int64_t terms, const std::function<float(int64_t)>& a,
                      const std::function<float(int64_t)>& b) {
  float sum = 0;
  for (int64_t first = 0; first < terms; first += kSumBlock<T>) {
    const int64_t end = std::min(terms, first + kSumBlock<T>);
    float block = 0;
    for (int64_t k = first; k < end; k += kTogether<T>) {
      for (int64_t i = k + kTogether<T> - 1; i >= k; --i) {
        block = i < end ? std::fma(a(i), b(i), block) : std::fma(0.0f, 0.0f, block);
      }
    }
    sum = first == 0 ? block : sum + block;
  }
  return sum;
}

// Memory that is filled with NaN and aligned to its numbers and to no more.
template <class T>
struct Unaligned {
  explicit Unaligned(size_t bytes) : memory(allocate(bytes + sizeof(T))) {
    std::memset(memory.data(), 0xff, memory.bytes());
  }
  T* data() const { return memory.as<T>() + 1; }
  Memory memory;
};

// Of a matrix of `rows` x `columns`.
Values transposed(const Values& of, int64_t rows, int64_t columns) {
  Values result(of.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      result[static_cast<size_t>(c * rows + r)] = of[static_cast<size_t>(r * columns + c)];
    }
  }
  return result;
}

size_t scratch_bytes() { return std::max(product_scratch(), blocked_product_scratch()); }

// The product of a and rows of b.
void multiply_rows(const Product& p, const float* a, const float* b, float* result, void* scratch) {
  multiply(BlockedProduct{p.rows, p.terms, p.columns}, a, b, nullptr, result, scratch);
}
void multiply_rows(const Product& p, const BFloat16* a, const float* b, float* result,
                   void* scratch) {
  multiply(p, a, b, result, scratch);
}

template <class T>
Unaligned<T> panels_of_columns(const Values& b, const Product& p) {
  Values columns = transposed(b, p.terms, p.columns);
  const TensorSpec spec = panels_spec(Shape{p.columns, p.terms}, DTypeOf<T>::value);
  Unaligned<T> panels(spec.bytes());
  spec.layout->from_row_major(columns.data(), panels.data());
  Values back(columns.size());
  spec.layout->to_row_major(panels.data(), back.data());
  for (float& x : columns) x = to_float(rounded<T>(x));
  EXPECT_EQ(back, columns);
  return panels;
}

// Whether kernels of this instruction set run here.
template <class T>
bool runs(int64_t target) {
  return std::is_same_v<T, float> || runs_bf16(target);
}

template <class T>
class Products : public testing::Test {};
using Types = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Products, Types);

const Product kProducts[] = {{1, 1, 1},      {3, 17, 1},    {7, 1, 17},   {13, 5, 16},
                             {16, 64, 10},   {37, 300, 33}, {5, 784, 50}, {25, 513, 65},
                             {0, 5, 3},      {3, 0, 17},    {2, 2500, 5}, {14, 1024, 70},
                             {140, 512, 40}, {3, 2048, 33}, {3, 0, 70},   {277, 600, 290},
                             {1, 700, 333},  {2, 130, 640}, {1, 0, 200},  {2, 2300, 333}};

template <class T>
void expect_documented_bits(const Product& p) {
  const Numbers<T> a = numbers<T>(p.rows * p.terms, 1);
  const Values b = values(p.terms * p.columns, 2), bias = values(p.columns, 3);
  const Numbers<T> narrow = rounded<T>(b);
  const Unaligned<T> panels = panels_of_columns<T>(b, p), scratch(scratch_bytes());
  Values plain, biased;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.columns; ++c) {
      plain.push_back(sum_of_products<T>(
          p.terms, [&](int64_t k) { return at(a, r * p.terms + k); },
          [&](int64_t k) { return at(narrow, k * p.columns + c); }));
      biased.push_back(plain.back() + at(bias, c));
    }
  }
  Values result(plain.size() + 1, 7);  // the last number must stay
  plain.push_back(7);
  biased.push_back(7);
  multiply_panels(p, a.data(), panels.data(), bias.data(), result.data(), scratch.data());
  EXPECT_EQ(result, biased);
  multiply_panels(p, a.data(), panels.data(), nullptr, result.data(), scratch.data());
  EXPECT_EQ(result, plain);
  if (p.rows <= kMostSharedRows) {
    for (const int threads : {1, 2, 5}) {
      PassThreads shared(threads);
      result.assign(result.size(), 7);
      shared.run([&] { share_panels(p, a.data(), panels.data(), bias.data(), result.data()); });
      EXPECT_EQ(result, biased) << threads << " threads";
    }
  }
  result.assign(result.size(), 7);
  multiply_rows(p, a.data(), b.data(), result.data(), scratch.data());
  EXPECT_EQ(result, plain);
  if constexpr (std::is_same_v<T, float>) {
    const Values a_columns = transposed(a, p.rows, p.terms),
                 b_columns = transposed(b, p.terms, p.columns);
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        SCOPED_TRACE(testing::Message() << "transposed: " << a_transposed << b_transposed);
        const BlockedProduct blocked{p.rows, p.terms, p.columns, a_transposed, b_transposed};
        const Values &left = a_transposed ? a_columns : a, &right = b_transposed ? b_columns : b;
        for (const bool adds_bias : {false, true}) {
          result.assign(result.size(), 7);
          multiply(blocked, left.data(), right.data(), adds_bias ? bias.data() : nullptr,
                   result.data(), scratch.data());
          EXPECT_EQ(result, adds_bias ? biased : plain);
        }
      }
    }
  }
}

TYPED_TEST(Products, HaveTheDocumentedBitsOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (!runs<TypeParam>(target)) continue;
    const Target only(target);
    for (const Product& p : kProducts) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + std::to_string(p.rows) + " x " +
                   std::to_string(p.terms) + " x " + std::to_string(p.columns));
      expect_documented_bits<TypeParam>(p);
    }
  }
}

TYPED_TEST(Products, HaveTheDocumentedBitsForAllSmallSizes) {
  if (!runs<TypeParam>(HWY_AVX3)) GTEST_SKIP() << "no bf16 instructions";
  for (int64_t n = 1; n <= 67; ++n) {
    for (const Product& p : {Product{n, 68 - n, n * 29 % 67 + 1}, Product{n * 31 % 67 + 1, n, n}}) {
      SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.terms) + " x " +
                   std::to_string(p.columns));
      expect_documented_bits<TypeParam>(p);
    }
  }
}

using Ranges = std::vector<IndexRange>;

Ranges ranges_of(int64_t n, int64_t least) {
  std::mutex mutex;
  Ranges ranges;
  share(n, least, [&](IndexRange range) {
    const std::lock_guard lock(mutex);
    ranges.push_back(range);
  });
  std::ranges::sort(ranges, {}, &IndexRange::first);
  return ranges;
}

TEST(PassThreads, ShareEveryIndexOnce) {
  EXPECT_EQ(ranges_of(10, 1), (Ranges{{0, 10}}));
  PassThreads three(3), one(1);
  three.run([&] {
    for (const int64_t n : {2, 10, 1000}) {
      const Ranges ranges = ranges_of(n, 2);
      EXPECT_EQ(std::ssize(ranges), std::min<int64_t>(n / 2, 12));
      int64_t end = 0;
      for (const IndexRange& range : ranges) {
        EXPECT_EQ(range.first, end);
        EXPECT_GE(range.count, 2);
        end = range.end();
      }
      EXPECT_EQ(end, n);
    }
    EXPECT_EQ(ranges_of(10, 6), (Ranges{{0, 10}}));
    EXPECT_EQ(ranges_of(0, 1), (Ranges{{0, 0}}));
    EXPECT_EQ(ranges_of(3, 0).size(), 3u);
    one.run([] { EXPECT_EQ(ranges_of(10, 1), (Ranges{{0, 10}})); });
    EXPECT_EQ(ranges_of(10, 1).size(), 10u);
  });
  EXPECT_EQ(ranges_of(10, 1), (Ranges{{0, 10}}));
  EXPECT_THROW(PassThreads(0), InvalidArgument);
}

// A part's own calls compute alone.
TEST(PassThreads, ShareNothingTwice) {
  PassThreads two(2);
  std::atomic<int64_t> indices = 0;
  two.run([&] {
    share(8, 1, [&](IndexRange outer) {
      const Ranges inner = ranges_of(100, 1);
      EXPECT_EQ(inner, (Ranges{{0, 100}}));
      indices += outer.count;
    });
  });
  EXPECT_EQ(indices, 8);
}

// Not numbers and infinities of other rows do not matter either.
TYPED_TEST(Products, OfARowDoNotDependOnOtherRows) {
  if (!runs<TypeParam>(HWY_AVX3)) GTEST_SKIP() << "no bf16 instructions";
  using T = TypeParam;
  for (const int64_t terms : {300, 301}) {
    const Product all{.rows = 37, .terms = terms, .columns = 33};
    Numbers<T> a = numbers<T>(all.rows * all.terms, 1);
    const Values b = values(all.terms * all.columns, 2);
    const Unaligned<T> panels = panels_of_columns<T>(b, all), scratch(scratch_bytes());
    Values whole(static_cast<size_t>(all.rows * all.columns)), parts(whole.size());
    for (const bool by_panels : {true, false}) {
      const auto compute = [&](const Product& p, int64_t first, Values& to) {
        const T* const from = a.data() + first * p.terms;
        float* const result = to.data() + first * p.columns;
        by_panels ? multiply_panels(p, from, panels.data(), nullptr, result, scratch.data())
                  : multiply_rows(p, from, b.data(), result, scratch.data());
      };
      compute(all, 0, whole);
      for (const int64_t step : {1, 5, 16}) {
        for (int64_t first = 0; first < all.rows; first += step) {
          compute({std::min(step, all.rows - first), all.terms, all.columns}, first, parts);
        }
        EXPECT_EQ(parts, whole) << step << " rows at a time";
      }
      const Numbers<T> numbers = a;
      for (int64_t r = 1; r < all.rows; r += 2) {
        std::fill_n(a.begin() + r * terms, terms, rounded<T>(r % 4 == 1 ? NAN : INFINITY));
      }
      compute(all, 0, parts);
      for (int64_t i = 0; i < all.rows * all.columns; ++i) {
        if (i / all.columns % 2 == 1) continue;
        ASSERT_EQ(at(parts, i), at(whole, i)) << "element " << i;
      }
      a = numbers;
    }
  }
}

// Operands of bf16 have exact products, and sums round as in f32.
TYPED_TEST(Products, AreNearThoseInFp64) {
  if (!runs<TypeParam>(HWY_AVX3)) GTEST_SKIP() << "no bf16 instructions";
  using T = TypeParam;
  const Product p{.rows = 19, .terms = 1001, .columns = 21};
  const Numbers<T> a = numbers<T>(p.rows * p.terms, 1);
  const Values b = values(p.terms * p.columns, 2);
  const Unaligned<T> panels = panels_of_columns<T>(b, p), scratch(scratch_bytes());
  Values by_panels(static_cast<size_t>(p.rows * p.columns)), by_rows(by_panels.size());
  multiply_panels(p, a.data(), panels.data(), nullptr, by_panels.data(), scratch.data());
  multiply_rows(p, a.data(), b.data(), by_rows.data(), scratch.data());
  EXPECT_EQ(by_panels, by_rows);
  double errors = 0, results = 0;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.columns; ++c) {
      double exact = 0;
      for (int64_t k = 0; k < p.terms; ++k) {
        exact += static_cast<double>(at(a, r * p.terms + k)) *
                 static_cast<double>(to_float(rounded<T>(at(b, k * p.columns + c))));
      }
      const double error = static_cast<double>(at(by_panels, r * p.columns + c)) - exact;
      errors += error * error;
      results += exact * exact;
    }
  }
  EXPECT_LE(std::sqrt(errors / results), 1e-6);
}

// A gradient: weights, then bias.
Values added(const Values& a, const Values& b) {
  Values sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

struct Problem {
  WeightsGradient gradient;
  std::vector<int64_t> shards;  // rows of each
};

// The gradient of rows [first, first + count) by the formula.
template <class T>
Values leaf(const WeightsGradient& p, const Numbers<T>& x, const Numbers<T>& dy, int64_t first,
            int64_t count) {
  Values gradient;
  for (int64_t u = 0; u < p.units; ++u) {
    for (int64_t i = 0; i < p.inputs; ++i) {
      gradient.push_back(sum_of_products<T>(
          count, [&](int64_t n) { return at(dy, (first + n) * p.units + u); },
          [&](int64_t n) { return at(x, (first + n) * p.inputs + i); }));
    }
  }
  for (int64_t u = 0; u < p.units && p.bias; ++u) {
    double sum = 0;
    for (int64_t n = first; n < first + count; ++n) {
      sum += static_cast<double>(at(dy, n * p.units + u));
    }
    gradient.push_back(static_cast<float>(sum));
  }
  return gradient;
}

// Sums of leaves as ((0 + 1) + 2) and (3 + 4), and what remains alone.
struct Tree {
  std::vector<ShardLeaf> leaves;
  std::vector<Values> roots;
};
Tree tree_of(const std::vector<int64_t>& shards, const std::vector<Values>& leaves) {
  Tree tree;
  for (const int64_t rows : shards) tree.leaves.push_back({.rows = rows});
  const auto close = [&](size_t last, int additions, Values sum) {
    tree.leaves[last].additions += additions;
    tree.leaves[last].root = static_cast<int>(tree.roots.size());
    tree.roots.push_back(std::move(sum));
  };
  size_t i = 0;
  if (shards.size() >= 3) {
    tree.leaves[1].additions = 1;
    close(2, 1, added(added(leaves[0], leaves[1]), leaves[2]));
    i = 3;
  }
  if (shards.size() >= 5) {
    close(4, 1, added(leaves[3], leaves[4]));
    i = 5;
  }
  for (; i < shards.size(); ++i) close(i, 0, leaves[i]);
  return tree;
}

template <class T>
void expect_tree_of_leaves(const Problem& problem) {
  WeightsGradient p = problem.gradient;
  p.dtype = DTypeOf<T>::value;
  int64_t rows = 0;
  std::vector<ShardLeaf> shards;
  for (const int64_t count : problem.shards) {
    rows += count;
    shards.push_back({.rows = count});
  }
  const Numbers<T> x = numbers<T>(rows * p.inputs, 4), dy = numbers<T>(rows * p.units, 5);
  std::vector<Values> leaves;
  int64_t first = 0;
  const kernels::SumOverShards sum = sum_of_weights_gradient(p);
  const Memory kept = allocate(sum.kept_bytes(shards));
  std::memset(kept.data(), 0xff, sum.kept_bytes(shards));  // NaN
  for (const int64_t count : problem.shards) {
    leaves.push_back(leaf<T>(p, x, dy, first, count));
    Numbers<T> own_x(x.begin() + first * p.inputs, x.begin() + (first + count) * p.inputs),
        own_dy(dy.begin() + first * p.units, dy.begin() + (first + count) * p.units);
    void* const reads[] = {own_x.data(), own_dy.data()};
    sum.keep(reads, {first, count}, shards, kept.data());
    first += count;
  }
  const Tree tree = tree_of(problem.shards, leaves);
  const auto weights = static_cast<size_t>(p.inputs * p.units);
  std::vector<Values> results(tree.roots.size(), Values(tree.roots[0].size() + 1, 7));
  std::vector<ShardRoot> roots;
  for (Values& result : results) roots.push_back({{result.data(), result.data() + weights}});
  for (int64_t range = 0; range < sum.update_ranges; ++range) {
    sum.add(kept.data(), tree.leaves, roots, {.update_range = range, .columns = {0, sum.columns}});
  }
  for (size_t r = 0; r < results.size(); ++r) {
    Values wanted = tree.roots[r];
    wanted.push_back(7);
    EXPECT_EQ(results[r], wanted) << "subtree " << r;
  }
}

template <class T>
class SumOverShards : public testing::Test {};
TYPED_TEST_SUITE(SumOverShards, Types);

TYPED_TEST(SumOverShards, IsTheTreeOfLeavesOnEveryInstructionSet) {
  const Problem problems[] = {{{1, 1, true}, {1}},
                              {{17, 3, true}, {3}},
                              {{16, 48, false}, {4, 4, 3, 3, 3}},
                              {{33, 50, true}, {7, 7, 6, 6, 1, 2}},
                              {{5, 11, true}, {300, 257, 256, 520}},
                              {{19, 49, true}, {257, 301, 1}},
                              {{17, 5, true}, {1025, 1024, 3, 2000, 1}},
                              {{3, 2, true}, {0, 1}}};
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (!runs<TypeParam>(target)) continue;
    const Target only(target);
    for (const Problem& problem : problems) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " +
                   std::to_string(problem.gradient.inputs) + " inputs, " +
                   std::to_string(problem.gradient.units) + " units");
      expect_tree_of_leaves<TypeParam>(problem);
    }
  }
}

// What use_gradients() does: blocks of columns alone, with neighbors that stay as they are.
TYPED_TEST(SumOverShards, BlocksOfColumnsHaveTheBitsOfTheWhole) {
  using T = TypeParam;
  const WeightsGradient p{.inputs = 2 * kernels::kBlockColumns + 37,
                          .units = kernels::kUnitsOfUpdateRange + 5,
                          .bias = true,
                          .dtype = DTypeOf<T>::value};
  constexpr int64_t kRows = 6;
  const Numbers<T> x = numbers<T>(kRows * p.inputs, 4), dy = numbers<T>(kRows * p.units, 5);
  const std::vector<ShardLeaf> leaves{{3, 0, -1}, {3, 1, 0}};
  const kernels::SumOverShards sum = sum_of_weights_gradient(p);
  const Values arrays(static_cast<size_t>(p.inputs * p.units));
  const float* const used_next[] = {arrays.data()};
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (!runs<T>(target)) continue;
    const Target only(target);
    SCOPED_TRACE(hwy::TargetName(target));
    const Memory kept = allocate(sum.kept_bytes(leaves));
    void* const reads[] = {const_cast<void*>(static_cast<const void*>(x.data())),
                           const_cast<void*>(static_cast<const void*>(dy.data()))};
    sum.keep(reads, {0, kRows}, leaves, kept.data());
    Values whole(static_cast<size_t>((p.inputs + 1) * p.units));
    const ShardRoot root{{whole.data(), whole.data() + p.inputs * p.units}};
    for (int64_t i = 0; i < sum.update_ranges; ++i) {
      sum.add(kept.data(), leaves, {&root, 1}, {.update_range = i, .columns = {0, sum.columns}});
    }
    for (int64_t i = 0; i < sum.update_ranges; ++i) {
      const int64_t first = i * kernels::kUnitsOfUpdateRange;
      const int64_t units = std::min(kernels::kUnitsOfUpdateRange, p.units - first);
      for (int64_t column = 0; column < p.inputs; column += kernels::kBlockColumns) {
        const int64_t columns = std::min(kernels::kBlockColumns, p.inputs - column);
        Values block(static_cast<size_t>(units * columns + 1), 7),
            bias(static_cast<size_t>(units + 1), 7);
        const ShardRoot alone{{block.data(), bias.data()}};
        sum.add(kept.data(), leaves, {&alone, 1}, {i, {column, columns}, true, used_next});
        for (int64_t u = 0; u < units; ++u) {
          for (int64_t c = 0; c < columns; ++c) {
            ASSERT_EQ(block[static_cast<size_t>(u * columns + c)],
                      whole[static_cast<size_t>((first + u) * p.inputs + column + c)])
                << "unit " << first + u << ", column " << column + c;
          }
          ASSERT_EQ(bias[static_cast<size_t>(u)],
                    column > 0 ? 7 : whole[static_cast<size_t>(p.inputs * p.units + first + u)]);
        }
        EXPECT_EQ(block.back(), 7);
        EXPECT_EQ(bias.back(), 7);
      }
    }
  }
}

// Several shards that are kept at once, as bundles are.
TYPED_TEST(SumOverShards, DoesNotDependOnHowManyShardsAreKeptAtOnce) {
  if (!runs<TypeParam>(HWY_AVX3)) GTEST_SKIP() << "no bf16 instructions";
  using T = TypeParam;
  const WeightsGradient p{.inputs = 35, .units = 50, .dtype = DTypeOf<T>::value};
  const std::vector<ShardLeaf> leaves{{5, 0, 0}, {5, 0, 1}, {4, 0, 2}, {3, 0, 3}};
  constexpr int64_t kRows = 17;
  const Numbers<T> x = numbers<T>(kRows * p.inputs, 4), dy = numbers<T>(kRows * p.units, 5);
  const kernels::SumOverShards sum = sum_of_weights_gradient(p);
  const auto kept_in_runs = [&](const std::vector<int64_t>& runs) {
    const size_t bytes = sum.kept_bytes(leaves);
    std::string kept(bytes, '\xff');
    int64_t first = 0;
    for (const int64_t count : runs) {
      Numbers<T> own_x(x.begin() + first * p.inputs, x.end()),
          own_dy(dy.begin() + first * p.units, dy.end());
      void* const reads[] = {own_x.data(), own_dy.data()};
      sum.keep(reads, {first, count}, leaves, kept.data());
      first += count;
    }
    return kept;
  };
  const std::string one_by_one = kept_in_runs({5, 5, 4, 3});
  EXPECT_EQ(kept_in_runs({kRows}), one_by_one);
  EXPECT_EQ(kept_in_runs({10, 7}), one_by_one);
}

// The elements can be counted, but not those of the padded layouts.
TEST(FullyConnected, OfUncountableSizesIsUnsupported) {
  const kernels::Table& table = kernels::table_for({});
  const int64_t most = int64_t{1} << 59;
  const auto spec = [](const Shape& shape) { return TensorSpec{shape, DType::f32, nullptr}; };
  EXPECT_THROW(table.fully_connected({spec({1, most}), 1, true}), Unsupported);
  EXPECT_THROW(table.fully_connected({spec({most, 1}), 1, true}), Unsupported);
  EXPECT_THROW(table.fully_connected({spec({1, 1}), most, true}), Unsupported);
  EXPECT_NO_THROW(table.fully_connected({spec({1, 1}), 1, true}));
}

}  // namespace
}  // namespace lockstep::optest
