// The reduce kernel beside its order written out, beside exact values, in every instruction set and
// on the emulated GPU.
#include "lockstep/engine/kernels/reductions/reduce.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest::reductions {
namespace {

using kernels::Kernel;
using kernels::ReduceProblem;
using kernels::Reduction;
using Floats = std::vector<float>;

constexpr Reduction kKinds[] = {Reduction::sum, Reduction::product, Reduction::maximum,
                                Reduction::minimum};

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}
::testing::AssertionResult same(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "other sizes";
  for (size_t i = 0; i < a.size(); ++i) {
    if (same(a[i], b[i])) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << a.size() << ": " << a[i] << ", not " << b[i];
  }
  return ::testing::AssertionSuccess();
}

// Runs the forward pass; results and scratch memory are filled with `fill` before.
Floats run(const Kernel& kernel, Floats x, float fill = NAN) {
  const kernels::Pass& pass = kernel.forward;
  const auto count = static_cast<size_t>(pass.writes[0].spec.shape.elements());
  x.push_back(fill);
  Floats dst(count + 1, fill);
  std::vector<double> scratch(pass.scratch_bytes / sizeof(double) + 1, double{fill});
  void* const reads[] = {x.data()};
  void* const writes[] = {dst.data()};
  pass.bind({.reads = reads, .writes = writes, .scratch = scratch.data()})({});
  EXPECT_TRUE(same(dst.back(), fill)) << "writes too far";
  dst.resize(count);
  return dst;
}

Kernel on_cpu(const ReduceProblem& p) { return kernels::table_for({}).reduce(p); }

ReduceProblem problem(const Shape& shape, std::vector<int> axes, Reduction kind = Reduction::sum,
                      double factor = 1) {
  return {{shape, DType::f32, nullptr}, std::move(axes), kind, factor};
}

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  int64_t below(int64_t n) {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return static_cast<int64_t>((state_ >> 20) % static_cast<uint64_t>(n));
  }
  // Of sizes from 1e-3 to 1e3, so that the order of additions shows even in double. Products of
  // some thousands stay finite.
  Floats numbers(int64_t count, Reduction kind) {
    Floats all(static_cast<size_t>(count));
    for (float& x : all) {
      const double share = static_cast<double>(below(1 << 24)) / (1 << 24);
      x = static_cast<float>(kind == Reduction::product
                                 ? (below(2) == 0 ? 1 + share / 100 : -1 / (1 + share / 100))
                                 : (share - 0.5) *
                                       std::pow(10.0, static_cast<double>(below(7)) - 3));
    }
    return all;
  }

 private:
  uint64_t state_;
};

double joined(Reduction kind, double a, double b) {
  if (kind == Reduction::sum) return a + b;
  if (kind == Reduction::product) return a * b;
  if (a != a || b != b) return NAN;
  return kind == Reduction::maximum ? (a > b ? a : b) : (a < b ? a : b);
}
double neutral_of(Reduction kind) {
  return kind == Reduction::sum       ? 0
         : kind == Reduction::product ? 1
         : kind == Reduction::maximum ? -INFINITY
                                      : INFINITY;
}

// The elements of each result: rows along the last axis, if that is reduced, at all positions.
struct Elements {
  std::vector<std::vector<std::vector<double>>> of;  // result, position, element of a row
  bool rows = false;
};

Elements elements_of(const ReduceProblem& p, const Floats& x) {
  // Axes of one element do not count.
  std::vector<int64_t> dims;
  std::vector<bool> reduced;
  for (int axis = 0; axis < p.src.shape.rank(); ++axis) {
    if (p.src.shape[axis] == 1) continue;
    dims.push_back(p.src.shape[axis]);
    reduced.push_back(std::count(p.axes.begin(), p.axes.end(), axis) > 0);
  }
  Elements e;
  e.rows = !reduced.empty() && reduced.back();
  // The row has all last axes that are reduced.
  size_t row_axis = dims.size();
  while (row_axis > 0 && reduced[row_axis - 1]) --row_axis;
  int64_t outputs = 1, positions = 1, row = 1;
  for (size_t a = 0; a < dims.size(); ++a) {
    (!reduced[a] ? outputs : a < row_axis ? positions : row) *= dims[a];
  }
  e.of.assign(static_cast<size_t>(outputs),
              std::vector<std::vector<double>>(static_cast<size_t>(positions)));
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    int64_t rest = i, output = 0, position = 0, out_step = 1, position_step = 1;
    for (size_t a = dims.size(); a-- > 0;) {
      const int64_t index = rest % dims[a];
      rest /= dims[a];
      if (!reduced[a]) {
        output += index * out_step;
        out_step *= dims[a];
      } else if (a < row_axis) {
        position += index * position_step;
        position_step *= dims[a];
      }
    }
    e.of[static_cast<size_t>(output)][static_cast<size_t>(position)].push_back(
        double{x[static_cast<size_t>(i)]});
  }
  return e;
}

// The order that reduce_axes.h describes.
double in_order(const std::vector<std::vector<double>>& positions, bool rows, Reduction kind) {
  double total = neutral_of(kind);
  if (!rows) {
    for (size_t p = 0; p < positions.size(); p += 256) {
      double block = neutral_of(kind);
      for (size_t i = p; i < std::min(p + 256, positions.size()); ++i) {
        block = joined(kind, block, positions[i].at(0));
      }
      total = joined(kind, total, block);
    }
    return total;
  }
  const size_t length = positions.empty() ? 0 : positions[0].size();
  std::vector<std::vector<std::vector<double>>> blocks;  // of rows or of segments of them
  if (length > 4096) {
    for (const auto& row : positions) {
      for (size_t s = 0; s < length; s += 4096) {
        blocks.push_back({{row.begin() + static_cast<std::ptrdiff_t>(s),
                           row.begin() + static_cast<std::ptrdiff_t>(std::min(s + 4096, length))}});
      }
    }
  } else {
    const size_t each = std::max<size_t>(4096 / std::max<size_t>(length, 1), 1);
    for (size_t p = 0; p < positions.size(); p += each) {
      blocks.emplace_back(
          positions.begin() + static_cast<std::ptrdiff_t>(p),
          positions.begin() + static_cast<std::ptrdiff_t>(std::min(p + each, positions.size())));
    }
  }
  for (const auto& block : blocks) {
    std::vector<double> lanes(16, neutral_of(kind));
    for (const auto& row : block) {
      for (size_t j = 0; j < row.size(); ++j) lanes[j % 16] = joined(kind, lanes[j % 16], row[j]);
    }
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes[l] = joined(kind, lanes[l], lanes[l + half]);
    }
    total = joined(kind, total, lanes[0]);
  }
  return total;
}

Floats expected(const ReduceProblem& p, const Floats& x) {
  const Elements e = elements_of(p, x);
  Floats all;
  for (const auto& positions : e.of) {
    const double result = in_order(positions, e.rows, p.kind);
    all.push_back(static_cast<float>(p.kind == Reduction::sum ? p.factor * result : result));
  }
  return all;
}

struct Random {
  ReduceProblem problem;
  Floats x;
};

Random random_reduction(uint64_t seed, int64_t most) {
  constexpr int64_t extents[] = {1,  2,   3,   4,   5,    7,    15,   16,   17,  33,
                                 49, 255, 257, 300, 1023, 1025, 4096, 4097, 9001};
  Numbers random(seed);
  const Reduction kind = kKinds[random.below(3) == 0 ? random.below(4) : 0];
  for (;;) {
    std::vector<int64_t> dims;
    std::vector<int> axes;
    const int64_t rank = random.below(7);
    int64_t elements = 1;
    bool nothing = false;
    for (int a = 0; a < rank; ++a) {
      dims.push_back(random.below(40) == 0 ? 0 : extents[random.below(std::size(extents))]);
      nothing = nothing || dims.back() == 0;
      elements *= std::max<int64_t>(dims.back(), 1);
      if (random.below(2) == 0) axes.push_back(a);
    }
    if (elements > most || (elements < most / 20 && random.below(3) > 0)) continue;
    const bool extreme = kind == Reduction::maximum || kind == Reduction::minimum;
    if (nothing && extreme) continue;
    const double factor = random.below(2) == 0 ? 1 : 1.0 / 3;
    const ReduceProblem p = problem(Shape(dims), axes, kind, factor);
    return {p, random.numbers(p.src.shape.elements(), kind)};
  }
}

std::string text_of(const ReduceProblem& p) {
  std::string text = p.src.shape.to_string() + " over";
  for (const int axis : p.axes) text += " " + std::to_string(axis);
  return text + ", kind " + std::to_string(static_cast<int>(p.kind));
}

TEST(Reduce, RandomReductionsHaveTheBitsOfTheirOrder) {
  int large = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Random r = random_reduction(seed, 60000);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(r.problem));
    large += r.x.size() > 10000;
    const Kernel kernel = on_cpu(r.problem);
    const Floats y = run(kernel, r.x);
    ASSERT_TRUE(same(y, expected(r.problem, r.x)));
    ASSERT_TRUE(same(run(kernel, r.x, 3e38f), y));
    for (int64_t all = hwy::SupportedTargets() & HWY_TARGETS; all != 0; all &= all - 1) {
      const Target only(all & -all);
      ASSERT_TRUE(same(run(kernel, r.x), y)) << hwy::TargetName(all & -all);
    }
  }
  EXPECT_GT(large, 60);
}

TEST(Reduce, TheGpusKernelHasTheCpusBits) {
  for (uint64_t seed = 1000; seed < 1100; ++seed) {
    const Random r = random_reduction(seed, 4000);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(r.problem));
    ASSERT_TRUE(same(run(kernels::cuda::reduce(r.problem), r.x), run(on_cpu(r.problem), r.x)));
  }
}

// x^2 - x, reduced.
ReduceProblem of_expression(ReduceProblem p) {
  using enum kernels::Opcode;
  p.of = {{p.src}, p.src.shape, {{square, 0}, {subtract, 1, 0}}};
  return p;
}

TEST(Reduce, AnExpressionHasTheBitsOfItsResults) {
  int streamed = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Random r = random_reduction(seed, seed < 300 ? 60000 : 4000);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(r.problem));
    Floats computed = r.x;
    for (float& x : computed) x = x * x - x;
    const Floats y = run(on_cpu(r.problem), computed);
    const Kernel kernel = on_cpu(of_expression(r.problem));
    ASSERT_TRUE(same(run(kernel, r.x), y));
    ASSERT_TRUE(same(run(kernel, r.x, 3e38f), y));
    streamed += r.x.size() > 30000 && kernel.forward.scratch_bytes < 4 * r.x.size();
    if (r.x.size() > 4000) continue;
    ASSERT_TRUE(same(run(kernels::cuda::reduce(of_expression(r.problem)), r.x), y));
  }
  EXPECT_GT(streamed, 5);
}

// Losses and gradients of broadcast values: no memory for what is reduced.
TEST(Reduce, AnExpressionOfRowsOrColumnsNeedsLittleMemory) {
  for (const auto& [shape, axes] : {std::pair{Shape{300, 5000}, std::vector<int>{1}},
                                    std::pair{Shape{50000, 1}, std::vector<int>{0, 1}},
                                    std::pair{Shape{5000, 7, 1, 3}, std::vector<int>{1, 3}},
                                    std::pair{Shape{5000, 300}, std::vector<int>{0}}}) {
    EXPECT_LT(on_cpu(of_expression(problem(shape, axes))).forward.scratch_bytes, size_t{70} << 10)
        << shape.to_string();
  }
}

// Sums in float would be wrong by a thousandth here.
TEST(Reduce, LongSumsAreExactToTheLastPlace) {
  for (const auto& [shape, axes, outputs] :
       {std::tuple{Shape{3000000}, std::vector<int>{0}, size_t{1}},
        std::tuple{Shape{1000000, 3}, std::vector<int>{0}, size_t{3}},
        std::tuple{Shape{1000, 3, 1000}, std::vector<int>{0, 2}, size_t{3}},
        std::tuple{Shape{3, 1000000}, std::vector<int>{1}, size_t{3}}}) {
    const Floats x(static_cast<size_t>(shape.elements()), 0.1f);
    const double count = static_cast<double>(x.size()) / static_cast<double>(outputs);
    for (const double factor : {1.0, 1 / count}) {
      const Floats y = run(on_cpu(problem(shape, axes, Reduction::sum, factor)), x);
      ASSERT_EQ(y.size(), outputs);
      for (const float v : y) EXPECT_FLOAT_EQ(v, static_cast<float>(double{0.1f} * count * factor));
    }
  }
}

TEST(Reduce, NothingGivesTheNeutralElement) {
  for (const auto& make : {on_cpu, kernels::cuda::reduce}) {
    EXPECT_EQ(run(make(problem({2, 0}, {1})), {}), (Floats{0, 0}));
    EXPECT_EQ(run(make(problem({2, 0}, {1}, Reduction::product)), {}), (Floats{1, 1}));
    EXPECT_EQ(run(make(problem({0, 2}, {0}, Reduction::product)), {}), (Floats{1, 1}));
    EXPECT_EQ(run(make(problem({0, 2}, {1})), {}), Floats{});
    EXPECT_EQ(run(make(problem({0, 3, 0}, {0, 2})), {}), (Floats{0, 0, 0}));
    EXPECT_EQ(run(make(problem({}, {}, Reduction::sum, 2)), {3}), Floats{6});
    EXPECT_EQ(run(make(problem({1, 2}, {}, Reduction::product, 2)), {3, 4}), (Floats{3, 4}));
  }
}

TEST(Reduce, NanWinsWhereverItIs) {
  for (const auto& make : {on_cpu, kernels::cuda::reduce}) {
    for (const Reduction kind : kKinds) {
      for (const int64_t n : {1, 15, 16, 40, 300}) {
        for (int64_t at = 0; at < n; at += 7) {
          Floats x(static_cast<size_t>(2 * n), 0.5f);
          x[static_cast<size_t>(at)] = NAN;
          const Floats y = run(make(problem({2, n}, {1}, kind)), x);
          EXPECT_TRUE(y[0] != y[0] && y[1] == y[1]) << n << " " << at;
          Floats across(x.size(), 0.5f);
          across[static_cast<size_t>(2 * at)] = NAN;
          const Floats z = run(make(problem({n, 2}, {0}, kind)), across);
          EXPECT_TRUE(z[0] != z[0] && z[1] == z[1]) << n << " " << at;
        }
      }
    }
    EXPECT_EQ(run(make(problem({3}, {0}, Reduction::maximum)), {-INFINITY, -INFINITY, -INFINITY}),
              Floats{-INFINITY});
    EXPECT_EQ(run(make(problem({3}, {0}, Reduction::minimum)), {2, -1, 7}), Floats{-1});
  }
}

// Shards are computed together on this promise.
TEST(Reduce, RowsAreApart) {
  Numbers random(3);
  for (const auto& [shape, axes] : {std::pair{Shape{9, 300}, std::vector<int>{1}},
                                    std::pair{Shape{9, 5, 7}, std::vector<int>{1}},
                                    std::pair{Shape{9, 3, 5, 70}, std::vector<int>{1, 3}},
                                    std::pair{Shape{9, 9001}, std::vector<int>{1}}}) {
    SCOPED_TRACE(shape.to_string());
    const Kernel whole = on_cpu(problem(shape, axes)),
                 one = on_cpu(problem(shape.with_batch(1), axes));
    EXPECT_TRUE(whole.rows_apart);
    EXPECT_TRUE(whole.backward.empty());
    const Floats x = random.numbers(shape.elements(), Reduction::sum);
    const auto each = static_cast<std::ptrdiff_t>(shape.elements() / 9);
    Floats rows;
    for (std::ptrdiff_t r = 0; r < 9; ++r) {
      for (const float y : run(one, {x.begin() + r * each, x.begin() + (r + 1) * each})) {
        rows.push_back(y);
      }
    }
    EXPECT_TRUE(same(run(whole, x), rows));
  }
  EXPECT_FALSE(on_cpu(problem({9, 3}, {0})).rows_apart);
  EXPECT_FALSE(on_cpu(problem({}, {})).rows_apart);
}

TEST(Reduce, RefusesAxesThatAreNotThere) {
  for (const auto& make : {on_cpu, kernels::cuda::reduce}) {
    for (const std::vector<int>& axes : {std::vector<int>{2}, {-1}, {1, 0}, {0, 0}}) {
      EXPECT_THROW(make(problem({2, 3}, axes)), InvalidArgument);
    }
    ReduceProblem narrow = problem({2}, {0});
    narrow.src.dtype = DType::bf16;
    EXPECT_THROW(make(narrow), InvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep::optest::reductions
