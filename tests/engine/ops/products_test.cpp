// Products of matrices and gradients of weights: their bits are those that their headers describe,
// for any number of rows, any division of shards, and every instruction set.
#include "lockstep/engine/kernels/cpu/matrices/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/matrices/panels.h"
#include "lockstep/engine/kernels/cpu/matrices/shard_gradients.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest {
namespace {

using namespace kernels;
using namespace kernels::cpu;

using Values = std::vector<float>;

// Numbers whose products round.
Values numbers(int64_t count, uint32_t seed) {
  Values values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
  }
  return values;
}

// The sum that products.h describes: blocks of fused multiplications and additions.
float sum_of_products(int64_t terms, const std::function<float(int64_t)>& a,
                      const std::function<float(int64_t)>& b) {
  float sum = 0;
  for (int64_t first = 0; first < terms; first += kSumBlock) {
    float block = 0;
    for (int64_t k = first; k < std::min(terms, first + kSumBlock); ++k) {
      block = std::fma(a(k), b(k), block);
    }
    sum = first == 0 ? block : sum + block;
  }
  return sum;
}

// Memory that is aligned to floats and to no more.
struct Unaligned {
  explicit Unaligned(size_t bytes) : memory(allocate_zeros(bytes + sizeof(float))) {}
  float* data() const { return memory.as<float>() + 1; }
  Memory memory;
};

Unaligned panels_of_columns(const Values& b, const Product& p) {
  Values columns(b.size());  // the transpose
  for (int64_t k = 0; k < p.terms; ++k) {
    for (int64_t c = 0; c < p.columns; ++c) {
      columns[static_cast<size_t>(c * p.terms + k)] = b[static_cast<size_t>(k * p.columns + c)];
    }
  }
  const TensorSpec spec = panels_spec(Shape{p.columns, p.terms});
  Unaligned panels(spec.bytes());
  spec.layout->from_row_major(columns.data(), panels.data());
  Values back(columns.size());
  spec.layout->to_row_major(panels.data(), back.data());
  EXPECT_EQ(back, columns);
  return panels;
}

const Product kProducts[] = {{1, 1, 1},     {3, 17, 1},   {7, 1, 17},    {13, 5, 16}, {16, 64, 10},
                             {37, 300, 33}, {5, 784, 50}, {25, 513, 65}, {0, 5, 3},   {3, 0, 17}};

void expect_documented_bits(const Product& p) {
  const Values a = numbers(p.rows * p.terms, 1), b = numbers(p.terms * p.columns, 2),
               bias = numbers(p.columns, 3);
  const Unaligned panels = panels_of_columns(b, p), scratch(product_scratch());
  const auto at = [](const Values& of, int64_t i) { return of[static_cast<size_t>(i)]; };
  Values plain, biased;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.columns; ++c) {
      plain.push_back(sum_of_products(
          p.terms, [&](int64_t k) { return at(a, r * p.terms + k); },
          [&](int64_t k) { return at(b, k * p.columns + c); }));
      biased.push_back(plain.back() + at(bias, c));
    }
  }
  Values result(plain.size() + 1, 7);  // the last number must stay
  plain.push_back(7);
  biased.push_back(7);
  multiply_panels(p, a.data(), panels.data(), bias.data(), result.data());
  EXPECT_EQ(result, biased);
  multiply_panels(p, a.data(), panels.data(), nullptr, result.data());
  EXPECT_EQ(result, plain);
  result.assign(result.size(), 7);
  multiply(p, a.data(), b.data(), result.data(), scratch.data());
  EXPECT_EQ(result, plain);
}

TEST(Products, HaveTheDocumentedBitsOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const Target only(target);
    for (const Product& p : kProducts) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + std::to_string(p.rows) + " x " +
                   std::to_string(p.terms) + " x " + std::to_string(p.columns));
      expect_documented_bits(p);
    }
  }
}

TEST(Products, OfARowDoNotDependOnOtherRows) {
  const Product all{.rows = 37, .terms = 300, .columns = 33};
  const Values a = numbers(all.rows * all.terms, 1), b = numbers(all.terms * all.columns, 2);
  const Unaligned panels = panels_of_columns(b, all), scratch(product_scratch());
  Values whole(static_cast<size_t>(all.rows * all.columns)), parts(whole.size());
  for (const bool by_panels : {true, false}) {
    const auto compute = [&](const Product& p, int64_t first, Values& to) {
      const float* const from = a.data() + first * p.terms;
      float* const result = to.data() + first * p.columns;
      by_panels ? multiply_panels(p, from, panels.data(), nullptr, result)
                : multiply(p, from, b.data(), result, scratch.data());
    };
    compute(all, 0, whole);
    for (const int64_t step : {1, 5, 16}) {
      for (int64_t first = 0; first < all.rows; first += step) {
        compute({std::min(step, all.rows - first), all.terms, all.columns}, first, parts);
      }
      EXPECT_EQ(parts, whole) << step << " rows at a time";
    }
  }
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
Values leaf(const WeightsGradient& p, const Values& x, const Values& dy, int64_t first,
            int64_t count) {
  Values gradient;
  const auto at = [](const Values& of, int64_t i) { return of[static_cast<size_t>(i)]; };
  for (int64_t u = 0; u < p.units; ++u) {
    for (int64_t i = 0; i < p.inputs; ++i) {
      gradient.push_back(sum_of_products(
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

void expect_tree_of_leaves(const Problem& problem) {
  const WeightsGradient& p = problem.gradient;
  int64_t rows = 0;
  for (const int64_t count : problem.shards) rows += count;
  const Values x = numbers(rows * p.inputs, 4), dy = numbers(rows * p.units, 5);
  std::vector<Values> leaves;
  int64_t first = 0;
  const SumOverShards sum = sum_of_weights_gradient(p);
  const Memory kept = allocate(sum.kept_bytes(rows));
  std::memset(kept.data(), 0xff, sum.kept_bytes(rows));  // NaN
  for (const int64_t count : problem.shards) {
    leaves.push_back(leaf(p, x, dy, first, count));
    Values own_x(x.begin() + first * p.inputs, x.begin() + (first + count) * p.inputs),
        own_dy(dy.begin() + first * p.units, dy.begin() + (first + count) * p.units);
    void* const reads[] = {own_x.data(), own_dy.data()};
    sum.keep(reads, {first, count}, rows, kept.data());
    first += count;
  }
  const Tree tree = tree_of(problem.shards, leaves);
  const auto weights = static_cast<size_t>(p.inputs * p.units);
  std::vector<Values> results(tree.roots.size(), Values(tree.roots[0].size() + 1, 7));
  std::vector<ShardRoot> roots;
  for (Values& result : results) roots.push_back({{result.data(), result.data() + weights}});
  for (int64_t piece = 0; piece < sum.pieces; ++piece) {
    sum.add(kept.data(), rows, tree.leaves, roots, piece);
  }
  for (size_t r = 0; r < results.size(); ++r) {
    Values wanted = tree.roots[r];
    wanted.push_back(7);
    EXPECT_EQ(results[r], wanted) << "subtree " << r;
  }
}

TEST(SumOverShards, IsTheTreeOfLeavesOnEveryInstructionSet) {
  const Problem problems[] = {{{1, 1, true}, {1}},
                              {{17, 3, true}, {3}},
                              {{16, 48, false}, {4, 4, 3, 3, 3}},
                              {{33, 50, true}, {7, 7, 6, 6, 1, 2}},
                              {{5, 11, true}, {300, 257, 256, 520}},
                              {{3, 2, true}, {0, 1}}};
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const Target only(target);
    for (const Problem& problem : problems) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " +
                   std::to_string(problem.gradient.inputs) + " inputs, " +
                   std::to_string(problem.gradient.units) + " units");
      expect_tree_of_leaves(problem);
    }
  }
}

// The elements can be counted, but not those of the padded layouts.
TEST(Products, OfUncountableSizesAreUnsupported) {
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
