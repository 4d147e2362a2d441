// Ops that read or write by indices, along one axis, or of other types than f32.
#include <numeric>

#include "lockstep/engine/kernels/elementwise/cast.h"
#include "lockstep/engine/kernels/reductions/arg_reduce.h"
#include "lockstep/engine/kernels/reductions/cumulative_sum.h"
#include "lockstep/engine/kernels/reductions/products_of_others.h"
#include "lockstep/engine/kernels/self_test/case_list.h"
#include "lockstep/engine/kernels/shapes/arange.h"
#include "lockstep/engine/kernels/shapes/scatter_add.h"
#include "lockstep/engine/kernels/shapes/take.h"

namespace lockstep::kernels::selftest {
namespace {

using Kind = Operand::Kind;

// All have the CPU's bits.
constexpr Bounds kSameBits{};

HostBytes some_indices(const Shape& shape, int64_t size) {
  std::vector<int32_t> indices;
  // Some lie outside of the axis.
  for (int64_t i = 0; i < shape.elements(); ++i) {
    indices.push_back(static_cast<int32_t>(i * 7 % (size + 2) - 1));
  }
  return bytes_of(indices);
}

void add_indexing(std::vector<TestCase>& to) {
  const struct {
    Shape x, indices, taken;
    int axis;
    bool per_element = false, large = false;
  } rows[] = {{{1}, {1}, {1}, 0},
              {{9, 4}, {3, 5}, {3, 5, 4}, 0},
              {{3, 7}, {300}, {3, 300}, 1},
              {{2, 6, 3, 5}, {4, 2}, {2, 4, 2, 3, 5}, 1},
              {{3, 7}, {3, 1}, {3, 1}, 1, true},
              {{2, 6, 3, 19}, {2, 9, 3, 19}, {2, 9, 3, 19}, 1, true},
              {{5000, 64}, {2048}, {2048, 64}, 0, false, true}};
  for (const auto& row : rows) {
    const std::string what = row.x.to_string() + " by " + row.indices.to_string() +
                             (row.per_element ? ", per element" : "");
    const auto given = [indices = row.indices, size = row.x[row.axis]] {
      return Values{{{Kind::input, 1}, some_indices(indices, size)}};
    };
    const TensorSpec indices = plain_spec(row.indices, DType::i32);
    add_case(
        to, "take", "f32", what, false,
        [=](const Specs& spec) {
          return TakeProblem{spec(row.x), indices, row.axis, row.per_element};
        },
        kSameBits, given, row.large);
    add_case(
        to, "scatter_add", "f32", what, false,
        [=](const Specs& spec) {
          return ScatterAddProblem{row.x, spec(row.taken), indices, row.axis, row.per_element};
        },
        kSameBits, given, row.large);
  }
}

void add_along_axis(std::vector<TestCase>& to) {
  const struct {
    Shape shape;
    int axis;
    bool large = false;
  } rows[] = {{{1}, 0},       {{3, 700}, 1},         {{700, 3}, 0},
              {{2, 9, 5}, 1}, {{64, 1000}, 1, true}, {{64, 32, 256}, 1, true}};
  for (const auto& row : rows) {
    const std::string what = row.shape.to_string() + ", axis " + std::to_string(row.axis);
    for (const bool other : {false, true}) {
      add_case(
          to, "arg_reduce", "f32", what + (other ? ", smallest" : ""), false,
          [=](const Specs& spec) {
            return ArgReduceProblem{spec(row.shape), row.axis, other};
          },
          kSameBits, {}, row.large);
      add_case(
          to, "cumulative_sum", "f32", what + (other ? ", reverse" : ""), false,
          [=](const Specs& spec) {
            return CumulativeSumProblem{spec(row.shape), row.axis, other};
          },
          kSameBits, {}, row.large);
    }
    if (row.axis + 1 < row.shape.rank()) continue;
    add_case(
        to, "products_of_others", "f32", what, false,
        [=](const Specs& spec) { return ProductsOfOthersProblem{spec(row.shape)}; }, kSameBits, {},
        row.large);
  }
}

void add_numbers(std::vector<TestCase>& to) {
  for (const ArangeProblem& p : {ArangeProblem{1, 1, 0.1, 0.1, 0}, ArangeProblem{7, 7, -1, 6, 0.3},
                                 ArangeProblem{1001, 501, -1, 1, 0.002}}) {
    add_case(
        to, "arange", "f32", std::to_string(p.count) + " elements", false,
        [p](const Specs&) { return p; }, kSameBits);
  }
}

void add_casts(std::vector<TestCase>& to) {
  std::vector<int32_t> whole(300);
  std::iota(whole.begin(), whole.end(), -20);
  for (const DType type : {DType::f32, DType::i32, DType::i64, DType::u8}) {
    add_case(
        to, "cast", "f32", "to " + std::string(name_of(type)), false,
        [=](const Specs& spec) {
          return CastProblem{spec({5, 60}), type};
        },
        kSameBits);
    add_case(
        to, "cast", "f32", "i32 to " + std::string(name_of(type)), false,
        [=](const Specs&) {
          return CastProblem{plain_spec({5, 60}, DType::i32), type};
        },
        kSameBits,
        [whole] {
          return Values{{{Kind::input, 0}, bytes_of(whole)}};
        });
  }
}

}  // namespace

std::vector<TestCase> index_cases() {
  std::vector<TestCase> cases;
  add_indexing(cases);
  add_along_axis(cases);
  add_numbers(cases);
  add_casts(cases);
  return cases;
}

}  // namespace lockstep::kernels::selftest
