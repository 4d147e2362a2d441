// Convolutions, pooling and products: kernels for which libraries choose algorithms by shape.
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"
#include "lockstep/engine/kernels/matrices/matrix_product.h"
#include "lockstep/engine/kernels/self_test/case_list.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/engine/kernels/windows/pooled_at_maximum.h"
#include "lockstep/engine/kernels/windows/pooling.h"
#include "lockstep/engine/kernels/windows/transposed_convolution.h"

namespace lockstep::kernels::selftest {
namespace {

struct Row {
  Shape src;
  int64_t channels;  // of the result
  Window window;
  int64_t groups = 1;
  bool bias = true;
  bool large = false;

  std::string text() const {
    return src.to_string() + " to " + std::to_string(channels) + " channels, kernel " +
           window.kernel.to_string() + ", stride " + window.stride.to_string() + ", dilation " +
           window.dilation.to_string() + ", groups " + std::to_string(groups) +
           (bias ? "" : ", no bias");
  }
};

Window square(int64_t kernel, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1) {
  return {.kernel = {kernel, kernel},
          .stride = {stride, stride},
          .dilation = {dilation, dilation},
          .pad_begin = {padding, padding},
          .pad_end = {padding, padding}};
}

const std::vector<Row>& convolutions() {
  static const std::vector<Row> rows{
      {{1, 1, 1, 1}, 1, {}},
      {{2, 3, 5, 7}, 4, square(1)},
      {{2, 3, 9, 9}, 16, square(3, 1, 1), 1, false},
      {{4, 16, 8, 8}, 16, square(3, 1, 1), 1, false},
      {{2, 16, 8, 8}, 32, square(3, 2, 1)},
      {{2, 32, 6, 6}, 64, square(1, 2), 1, false},
      {{2, 64, 4, 4}, 16, square(1), 1, false},
      {{2, 33, 9, 7}, 17, square(3, 1, 1)},
      {{3, 8, 9, 9}, 8, square(5, 1, 2)},
      {{2, 3, 15, 15}, 8, square(7, 2, 3), 1, false},
      {{2, 8, 10, 9}, 8, square(3, 1, 2, 2)},
      {{1, 4, 6, 5}, 6, square(3, 1, 1), 2},
      {{2, 8, 7, 6}, 8, square(3, 1, 1), 8, false},
      {{2, 3, 9, 6}, 5, {.kernel = {3, 2}, .stride = {2, 3}, .pad_begin = {1, 0}}},
      {{2, 3, 9, 8},
       5,
       {.kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 2}, .pad_end = {2, 1}}},
      {{2, 3, 9}, 5, {{3}, {2}, {1}, {1}, {2}}},
      {{2, 3, 4, 5, 6}, 4, {{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {{2, 3, 6, 5, 7}, 4, {{2, 3, 2}, {2, 1, 1}, {1, 2, 3}, {0, 2, 1}, {1, 0, 2}}},
      {{32, 16, 32, 32}, 16, square(3, 1, 1), 1, false, true},
      {{16, 64, 28, 28}, 64, square(3, 1, 1), 1, false, true},
      {{8, 128, 14, 14}, 128, square(3, 1, 1), 1, false, true},
      {{16, 64, 28, 28}, 128, square(1), 1, false, true},
      {{8, 64, 28, 28}, 128, square(3, 2, 1), 1, false, true},
      {{4, 3, 112, 112}, 64, square(7, 2, 3), 1, false, true},
      {{16, 32, 28, 28}, 32, square(3, 1, 1), 32, false, true},
      {{16, 8, 32, 32}, 16, square(5, 1, 2), 1, true, true},
  };
  return rows;
}

const std::vector<Row>& transposed_convolutions() {
  static const std::vector<Row> rows{
      {{1, 1, 1, 1}, 1, {}},
      {{2, 3, 5, 7},
       4,
       {.kernel = {3, 2}, .stride = {2, 2}, .pad_begin = {1, 0}, .pad_end = {0, 1}}},
      {{2, 16, 6, 6}, 8, square(4, 2, 1)},
      {{2, 32, 4, 4}, 16, square(2, 2), 1, false},
      {{2, 16, 5, 5}, 16, square(3, 1, 1)},
      {{1, 4, 6, 5}, 6, square(3, 1, 1), 2},
      {{16, 32, 16, 16}, 16, square(4, 2, 1), 1, true, true},
  };
  return rows;
}

const std::vector<Row>& poolings() {
  static const std::vector<Row> rows{
      {{1, 1, 1, 1}, 1, {}},
      {{2, 3, 5, 7}, 3, square(2, 2)},
      {{2, 16, 8, 8}, 16, square(2, 2)},
      {{2, 33, 9, 4},
       33,
       {.kernel = {3, 2}, .stride = {2, 1}, .pad_begin = {1, 0}, .pad_end = {1, 1}}},
      {{2, 5, 9, 8}, 5, square(3, 2, 1)},
      {{1, 5, 11, 8}, 5, square(3, 2, 2, 2)},
      {{1, 2, 20, 18}, 2, {.kernel = {20, 18}}},
      {{2, 3, 9}, 3, {{3}, {2}, {1}, {1}, {0}}},
      {{2, 3, 4, 6, 5}, 3, {{2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
      {{16, 64, 56, 56}, 64, square(3, 2, 1), 1, false, true},
      {{64, 16, 32, 32}, 16, square(2, 2), 1, false, true},
  };
  return rows;
}

Shape result_of(const Row& r, bool transposed) {
  std::vector<int64_t> dims{r.src[0], r.channels};
  for (int a = 0; a < r.window.axes(); ++a) {
    const int64_t size = r.src[2 + a];
    dims.push_back(transposed ? transposed_size(r.window, a, size)
                              : window_positions(r.window, a, size));
  }
  return Shape(dims);
}

Shape weights_of(const Row& r, bool transposed) {
  std::vector<int64_t> dims{r.channels, r.src[1] / r.groups};
  if (transposed) dims = {r.src[1], r.channels / r.groups};
  for (const int64_t k : r.window.kernel) dims.push_back(k);
  return Shape(dims);
}

// As in the tests of ops: Winograd's algorithm rounds transformed values to the narrow type too.
Bounds bounds_of_convolution(const std::string& type, const Row& r) {
  Bounds bounds = bounds_of(type);
  const bool winograd = r.window.kernel == Sizes{3, 3} && r.window.stride == Sizes{1, 1} &&
                        r.window.dilation == Sizes{1, 1} && r.groups == 1;
  if (winograd && is_narrow(numbers_of(type))) bounds.error = kNarrowWinograd;
  return bounds;
}

template <class Problem>
void add_convolution(std::vector<TestCase>& to, const Table& table, const char* kernel,
                     const Row& r, bool transposed) {
  for (const std::string& type : types_of(table, kernel)) {
    add_case(
        to, kernel, type, r.text(), false,
        [r, transposed](const Specs& spec) {
          return Problem{
              spec(r.src), weights_of(r, transposed), result_of(r, transposed), r.window, r.groups,
              r.bias};
        },
        bounds_of_convolution(type, r), {}, r.large);
  }
}

// Equal numbers: the first one of a window gets the gradient.
Values equal_numbers(const Shape& shape) {
  std::vector<float> x = normal_numbers(static_cast<size_t>(shape.elements()), 1);
  for (float& v : x) v = v > 0 ? 1.0f : -1.0f;
  return {{{Operand::Kind::input, 0}, bytes_of(x)}};
}

void add_pooling(std::vector<TestCase>& to, const Table& table, const Row& r) {
  using enum PoolingProblem::Kind;
  for (const std::string& type : types_of(table, "pooling")) {
    for (const auto& [kind, name] :
         {std::pair{max, "maximum"}, std::pair{average_with_padding, "average with padding"},
          std::pair{average_without_padding, "average"}}) {
      const auto problem = [r, kind = kind](const Specs& spec) {
        return PoolingProblem{spec(r.src), result_of(r, false), r.window, kind};
      };
      const std::string text = std::string(name) + " of " + r.src.to_string() + ", kernel " +
                               r.window.kernel.to_string() + ", stride " +
                               r.window.stride.to_string();
      // An average's gradients are equal within a window, and so are their rounding errors.
      Bounds bounds = bounds_of(type);
      if (kind != max) bounds.scale = 0;
      for (const bool in_layout : {false, true}) {
        add_case(to, "pooling", type, text, in_layout, problem, bounds, {}, r.large);
      }
      if (kind != max || r.large) continue;
      add_case(to, "pooling", type, text + ", equal numbers", false, problem, bounds_of(type),
               [src = r.src] { return equal_numbers(src); });
    }
  }
}

void add_pooled_at_maximum(std::vector<TestCase>& to, const Row& r) {
  if (r.large) return;
  const auto problem = [r](const Specs&) {
    return PooledAtMaximumProblem{plain_spec(r.src, DType::f32), result_of(r, false), r.window};
  };
  const std::string text = r.src.to_string() + ", kernel " + r.window.kernel.to_string() +
                           ", stride " + r.window.stride.to_string();
  const std::string type(name_of(DType::f32));
  add_case(to, "pooled_at_maximum", type, text, false, problem, {}, {}, false);
  add_case(to, "pooled_at_maximum", type, text + ", equal numbers", false, problem, {},
           [src = r.src] { return equal_numbers(src); });
}

void add_products(std::vector<TestCase>& to, const Table& table) {
  const struct {
    Shape src;
    int64_t units;
    bool large = false;
  } rows[] = {{{1, 1}, 1},
              {{5, 3}, 7},
              {{16, 64}, 10},
              {{33, 100}, 65},
              {{2, 3, 5, 7}, 7},
              {{4, 16, 4, 4}, 10},
              {{2, 40, 1, 1}, 3},
              {{2, 3, 2, 5, 4}, 6},
              {{128, 784}, 512, true},
              {{64, 64, 8, 8}, 10, true},
              {{256, 512}, 1000, true}};
  for (const auto& row : rows) {
    for (const std::string& type : types_of(table, "fully_connected")) {
      for (const bool bias : {true, false}) {
        if (row.large && !bias) continue;
        for (const bool in_layout : {false, true}) {
          if (in_layout && !has_layouts(row.src)) continue;
          add_case(
              to, "fully_connected", type,
              row.src.to_string() + " to " + std::to_string(row.units) + " units" +
                  (bias ? "" : ", no bias"),
              in_layout,
              [src = row.src, units = row.units, bias](const Specs& spec) {
                return FullyConnectedProblem{spec(src), units, bias};
              },
              bounds_of(type), {}, row.large);
        }
      }
    }
  }
}

void add_matrix_products(std::vector<TestCase>& to, const Table& table) {
  const struct {
    Shape a, b;
    bool large = false;
  } rows[] = {{{1, 1}, {1, 1}},
              {{5, 3}, {3, 7}},
              {{33, 100}, {100, 65}},
              {{33, 100}, {100, 1}},
              {{1, 100}, {100, 65}},
              {{6, 5, 3}, {6, 3, 7}},
              {{6, 8, 16}, {16, 12}},
              {{2, 1, 5, 3}, {4, 3, 7}},
              {{3, 0}, {0, 4}},
              {{512, 512}, {512, 512}, true},
              {{64, 64, 64}, {64, 64, 64}, true}};
  const auto turned = [](const Shape& shape, bool transposed) {
    std::vector<int64_t> dims = shape.dims();
    if (transposed) std::swap(dims.end()[-1], dims.end()[-2]);
    return Shape(dims);
  };
  for (const auto& row : rows) {
    for (const std::string& type : types_of(table, "matrix_product")) {
      for (const bool a : {false, true}) {
        for (const bool b : {false, true}) {
          add_case(
              to, "matrix_product", type,
              row.a.to_string() + (a ? " transposed" : "") + " by " + row.b.to_string() +
                  (b ? " transposed" : ""),
              false,
              [of_a = turned(row.a, a), of_b = turned(row.b, b), a, b](const Specs& spec) {
                return MatrixProductProblem{spec(of_a), spec(of_b), a, b};
              },
              bounds_of(type), {}, row.large);
        }
      }
    }
  }
}

}  // namespace

std::vector<TestCase> window_cases(const Table& table) {
  std::vector<TestCase> cases;
  for (const Row& r : convolutions()) {
    add_convolution<ConvolutionProblem>(cases, table, "convolution", r, false);
  }
  for (const Row& r : transposed_convolutions()) {
    add_convolution<TransposedConvolutionProblem>(cases, table, "transposed_convolution", r, true);
  }
  add_matrix_products(cases, table);
  for (const Row& r : poolings()) {
    add_pooling(cases, table, r);
    add_pooled_at_maximum(cases, r);
  }
  add_products(cases, table);
  return cases;
}

TensorSpec layout_of_convolutions(Bench& bench, const Shape& shape, DType type) {
  const TensorSpec plain = plain_spec(shape, type);
  if (!has_layouts(shape) || !bench.table().convolution) return plain;
  const int axes = shape.rank() - 2;
  ConvolutionProblem p;
  p.src = plain;
  p.window = {.kernel = Sizes::all(axes, 3),
              .stride = Sizes::all(axes, 1),
              .dilation = Sizes::all(axes, 1),
              .pad_begin = Sizes::all(axes, 1),
              .pad_end = Sizes::all(axes, 1)};
  std::vector<int64_t> weights{shape[1], shape[1]};
  weights.insert(weights.end(), static_cast<size_t>(axes), 3);
  p.weights = Shape(weights);
  p.dst = shape;
  try {
    const TensorSpec spec = bench.table().convolution(p).forward.writes.at(0).spec;
    return spec.dtype == type ? spec : plain;
  } catch (const Unsupported&) {
    return plain;
  }
}

}  // namespace lockstep::kernels::selftest
