// Taking, scattering, extremes, cumulative sums, products of others, ranges and casts: the CUDA
// back end has the bits of the CPU's.
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/elementwise/cast.h"
#include "lockstep/engine/kernels/reductions/arg_reduce.h"
#include "lockstep/engine/kernels/reductions/cumulative_sum.h"
#include "lockstep/engine/kernels/reductions/products_of_others.h"
#include "lockstep/engine/kernels/shapes/arange.h"
#include "lockstep/engine/kernels/shapes/scatter_add.h"
#include "lockstep/engine/kernels/shapes/take.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

// Some lie outside of an axis of `size`.
template <class T>
Bytes some_indices(const Shape& shape, int64_t size) {
  std::vector<T> indices;
  std::mt19937_64 random(7);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    indices.push_back(static_cast<T>(random() % static_cast<uint64_t>(size + 2)) - 1);
  }
  return bytes_of(indices);
}

TEST(CudaIndexing, TakesAndScatters) {
  struct Row {
    Shape x, indices, taken;
    int axis;
    bool per_element = false;
  };
  const Row rows[] = {{{1}, {1}, {1}, 0},
                      {{5}, {7}, {7}, 0},
                      {{5}, {0}, {0}, 0},
                      {{9, 4}, {3, 5}, {3, 5, 4}, 0},
                      {{3, 7}, {300}, {3, 300}, 1},
                      {{2, 6, 3, 5}, {4, 2}, {2, 4, 2, 3, 5}, 1},
                      {{5}, {8}, {8}, 0, true},
                      {{3, 7}, {3, 1}, {3, 1}, 1, true},
                      {{2, 6, 3, 19}, {2, 9, 3, 19}, {2, 9, 3, 19}, 1, true}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.x.to_string() + " by " + row.indices.to_string());
    for (const DType type : {DType::i32, DType::i64}) {
      const int64_t size = row.x[row.axis];
      const Bytes indices = type == DType::i32 ? some_indices<int32_t>(row.indices, size)
                                               : some_indices<int64_t>(row.indices, size);
      const Given given{{{Kind::input, 1}, indices}};
      const TakeProblem take{plain(row.x), plain(row.indices, type), row.axis, row.per_element};
      compare(cpu_table().take(take), cuda::take(take), kSame, given);
      const ScatterAddProblem scatter{row.x, plain(row.taken), plain(row.indices, type), row.axis,
                                      row.per_element};
      compare(cpu_table().scatter_add(scatter), cuda::scatter_add(scatter), kSame, given);
    }
  }
}

TEST(CudaIndexing, WholeNumbersAreTaken) {
  const std::vector<int64_t> x{5, 6, 7};
  const std::vector<int32_t> indices{2, 3, -1, 0};
  const auto taken = run(cuda::take({plain({3}, DType::i64), plain({4}, DType::i32), 0}),
                         {{{Kind::input, 0}, bytes_of(x)}, {{Kind::input, 1}, bytes_of(indices)}});
  EXPECT_EQ(values_of<int64_t>(taken.at({Kind::output, 0})), (std::vector<int64_t>{7, 0, 0, 5}));
}

TEST(CudaAlongAxis, PositionsOfExtremes) {
  for (const auto& [shape, axis] :
       {std::pair{Shape{1}, 0}, std::pair{Shape{3, 700}, 1}, std::pair{Shape{700, 3}, 0},
        std::pair{Shape{2, 9, 5}, 1}, std::pair{Shape{0, 3}, 1}}) {
    std::vector<float> x = normal(static_cast<size_t>(shape.elements()), 1);
    for (float& v : x) v = std::round(v);
    for (size_t i = 11; i < x.size(); i += 50) x[i] = i % 3 == 0 ? kNaN : INFINITY;
    for (const bool smallest : {false, true}) {
      SCOPED_TRACE(shape.to_string());
      const ArgReduceProblem p{plain(shape), axis, smallest};
      const Given given{{{Kind::input, 0}, bytes_of(x)}};
      EXPECT_EQ(values_of<int64_t>(run(cuda::arg_reduce(p), given).at({Kind::output, 0})),
                values_of<int64_t>(run(cpu_table().arg_reduce(p), given).at({Kind::output, 0})));
    }
  }
}

TEST(CudaAlongAxis, CumulativeSums) {
  for (const auto& [shape, axis] :
       {std::pair{Shape{1}, 0}, std::pair{Shape{3, 70}, 1}, std::pair{Shape{70, 3}, 0},
        std::pair{Shape{2, 9, 5}, 1}, std::pair{Shape{3, 0}, 1}}) {
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(shape.to_string());
      const CumulativeSumProblem p{plain(shape), axis, reverse};
      compare(cpu_table().cumulative_sum(p), cuda::cumulative_sum(p), kSame);
    }
  }
}

TEST(CudaAlongAxis, ProductsOfOthers) {
  for (const Shape& shape : {Shape{1}, Shape{3, 70}, Shape{2, 9, 5}, Shape{3, 0}, Shape{0, 3}}) {
    SCOPED_TRACE(shape.to_string());
    const ProductsOfOthersProblem p{plain(shape)};
    compare(cpu_table().products_of_others(p), cuda::products_of_others(p), kSame);
  }
}

TEST(CudaArange, HasTheBitsOfTheProcessor) {
  for (const ArangeProblem& p : {ArangeProblem{0, 0, 1, 2, 3}, ArangeProblem{1, 1, 0.1, 0.1, 0},
                                 ArangeProblem{700, 350, -1, 1, 2.0 / 699}}) {
    compare(cpu_table().arange(p), cuda::arange(p), kSame);
  }
}

TEST(CudaCast, OfEveryTypeToEvery) {
  const std::vector<float> floats{0, -0.5f, 1.9f, -1.9f, 300, kNaN, INFINITY, -INFINITY, 0x1p31f};
  const std::vector<int64_t> wide{0, -1, 255, 256, int64_t{1} << 40, -(int64_t{1} << 40), 7, 8, 9};
  const std::vector<int32_t> narrow{0, -1, 255, 256, 1 << 25, -(1 << 25), 7, 8, 9};
  const std::vector<uint8_t> bytes{0, 1, 255, 4, 5, 6, 7, 8, 9};
  for (const auto& [type, values] :
       {std::pair{DType::f32, bytes_of(floats)}, std::pair{DType::i64, bytes_of(wide)},
        std::pair{DType::i32, bytes_of(narrow)}, std::pair{DType::u8, bytes_of(bytes)}}) {
    for (const DType to : {DType::f32, DType::i64, DType::i32, DType::u8}) {
      SCOPED_TRACE(std::string(name_of(type)) + " to " + std::string(name_of(to)));
      const CastProblem p{plain({9}, type), to};
      const Given given{{{Kind::input, 0}, values}};
      EXPECT_TRUE(run(cuda::cast(p), given) == run(cpu_table().cast(p), given));
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
