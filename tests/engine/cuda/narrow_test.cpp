// The CUDA back end's kernels for bf16 and f16, run by the emulation and compared with the CPU's
// for floats, on numbers that both types can represent.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/shapes/layout.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"
#include "lockstep/engine/kernels/shapes/concatenation.h"
#include "lockstep/engine/kernels/shapes/reshape.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/engine/kernels/windows/pooling.h"
#include "lockstep/engine/kernels/windows/transposed_convolution.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

// The type of elements.
class CudaNarrow : public ::testing::TestWithParam<DType> {
 protected:
  Given special_values(const Shape& shape) const {
    std::vector<float> x = narrowed(normal(static_cast<size_t>(shape.elements()), 1), GetParam());
    const float special[] = {0.0f, -0.0f, kNaN, INFINITY, -INFINITY, 0.75f};
    for (size_t i = 0; i < x.size() && i < std::size(special); ++i) x[i] = special[i];
    return {{{Kind::input, 0}, bytes_of(x)}};
  }
  void expect_narrow(const Operand& o) const { EXPECT_EQ(o.spec.dtype, GetParam()); }
  void compare(const Kernel& cpu, const Kernel& cuda, double tolerance,
               const Given& given = {}) const {
    compare_narrow(cpu, cuda, GetParam(), tolerance, given);
  }
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{1},          {5, 3},        {1, 1, 1, 1},
                                      {2, 3, 5, 7}, {3, 33, 9, 4}, {4, 40, 1, 1},
                                      {300, 3},     {3, 5, 9},     {2, 3, 2, 5, 4}};
  return all;
}

TEST_P(CudaNarrow, Relu) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.to_string());
    for (const TensorSpec& spec :
         {plain(shape, GetParam()), cuda::channels_last(shape, GetParam())}) {
      const Kernel kernel = cuda::relu({spec});
      expect_narrow(kernel.forward.writes[0]);
      compare(cpu_table().relu({plain(shape)}), kernel, kSame, special_values(shape));
    }
  }
}

TEST_P(CudaNarrow, Addition) {
  for (const Shape& shape : shapes()) {
    for (const size_t terms : {1u, 2u, 3u, 8u, 9u, 17u}) {
      SCOPED_TRACE(shape.to_string() + ", " + std::to_string(terms));
      const Kernel kernel =
          cuda::addition({std::vector<TensorSpec>(terms, cuda::channels_last(shape, GetParam()))});
      expect_narrow(kernel.forward.writes[0]);
      compare(cpu_table().addition({std::vector<TensorSpec>(terms, plain(shape))}), kernel,
              kNarrow);
    }
  }
}

// A sum of two numbers is rounded once.
TEST_P(CudaNarrow, SumsAreRoundedOnce) {
  const Shape shape{7, 5};
  const Given given{{{Kind::input, 0}, bytes_of(narrowed(normal(35, 1), GetParam()))},
                    {{Kind::input, 1}, bytes_of(narrowed(normal(35, 2), GetParam()))}};
  const TensorSpec spec = plain(shape, GetParam());
  auto sums = values_of(run(cuda::addition({{spec, spec}}), given).at({Kind::output, 0}));
  auto accumulated = values_of(run({cuda::accumulate(spec), {}}, given).at({Kind::output, 0}));
  const auto a = values_of(given.at({Kind::input, 0})), b = values_of(given.at({Kind::input, 1}));
  std::vector<float> expected;
  for (size_t i = 0; i < a.size(); ++i) expected.push_back(a[i] + b[i]);
  EXPECT_EQ(sums, narrowed(expected, GetParam()));
  EXPECT_EQ(accumulated, narrowed(expected, GetParam()));
}

TEST_P(CudaNarrow, Reshape) {
  compare(cpu_table().reshape({plain({2, 3, 5, 7}), {6, 35}}),
          cuda::reshape({plain({2, 3, 5, 7}, GetParam()), {6, 35}}), kSame);
}

TEST_P(CudaNarrow, Concatenation) {
  const struct {
    std::vector<Shape> src;
    int axis;
  } rows[] = {{{{2, 3, 5, 7}, {2, 1, 5, 7}, {2, 40, 5, 7}}, 1},
              {{{2, 3, 5, 7}, {1, 3, 5, 7}}, 0},
              {{{2, 3, 5, 7}, {2, 3, 5, 1}}, 3},
              {{{4, 3}, {4, 300}}, 1},
              {{{2, 3, 2, 5, 4}, {2, 4, 2, 5, 4}}, 1}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.src.front().to_string() + " axis " + std::to_string(row.axis));
    ConcatenationProblem wide{{}, row.axis}, narrow{{}, row.axis};
    for (const Shape& s : row.src) {
      wide.src.push_back(plain(s));
      narrow.src.push_back(plain(s, GetParam()));
    }
    for (const bool mixed : {false, true}) {
      if (mixed) narrow.src.back().dtype = DType::f32;
      const Kernel kernel = cuda::concatenation(narrow);
      expect_narrow(kernel.forward.writes[0]);
      expect_narrow(kernel.forward.reads.back());
      compare(cpu_table().concatenation(wide), kernel, kSame);
    }
  }
}

TEST_P(CudaNarrow, BatchNormalization) {
  for (const Shape& shape : std::vector<Shape>{{30, 5},
                                               {300, 3},
                                               {2, 3, 5, 7},
                                               {3, 33, 9, 4},
                                               {3, 5, 2, 7, 4},
                                               {8, 16, 20, 20},
                                               {3, 12, 9, 7},  // packs of 4 channels
                                               {70, 520},      // more than 32 packs
                                               {5, 40, 1, 3}}) {
    for (const bool training : {true, false}) {
      for (const bool relu : {true, false}) {
        SCOPED_TRACE(shape.to_string() + (training ? " training" : "") + (relu ? " relu" : ""));
        const BatchNormalizationProblem wide{plain(shape), 1e-5, relu, training},
            narrow{plain(shape, GetParam()), 1e-5, relu, training};
        Given given;
        if (!training) {
          std::vector<float> variance = normal(static_cast<size_t>(shape[1]), 3);
          for (float& v : variance) v = std::abs(v) + 0.1f;
          given[{Kind::input, 4}] = bytes_of(variance);
        }
        const Kernel kernel = cuda::batch_normalization(narrow);
        expect_narrow(kernel.forward.writes[0]);
        for (const Operand& o : kernel.forward.writes) {
          if (o.kind != Kind::output || o.index == 0) continue;
          EXPECT_EQ(o.spec.dtype, DType::f32) << "statistics";
        }
        compare(cpu_table().batch_normalization(wide), kernel, kNarrow, given);
      }
    }
  }
}

TEST_P(CudaNarrow, Pooling) {
  const struct {
    Shape src;
    Window window;
  } rows[] = {
      {{2, 3, 5, 7}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{2, 8, 6, 4}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{3, 40, 5, 7}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{1, 12, 2, 9}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{2, 16, 5, 7}, {.kernel = {2, 2}, .stride = {2, 2}, .pad_end = {1, 1}}},
      {{2, 33, 9, 4}, {.kernel = {3, 2}, .stride = {2, 1}, .pad_begin = {1, 0}, .pad_end = {1, 1}}},
      {{1, 2, 20, 18}, {.kernel = {20, 18}}},  // too large for positions in one byte
      {{2, 3, 9}, {{3}, {2}, {1}, {1}, {0}}},
      {{2, 3, 4, 6, 5}, {{2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
  };
  for (const auto& row : rows) {
    using enum PoolingProblem::Kind;
    for (const auto kind : {max, average_with_padding, average_without_padding}) {
      SCOPED_TRACE(row.src.to_string() + " kind " + std::to_string(static_cast<int>(kind)));
      std::vector<int64_t> dst{row.src[0], row.src[1]};
      for (int a = 0; a < row.window.axes(); ++a) {
        dst.push_back(window_positions(row.window, a, row.src[2 + a]));
      }
      const Kernel wide = cpu_table().pooling({plain(row.src), Shape(dst), row.window, kind});
      const Kernel narrow =
          cuda::pooling({plain(row.src, GetParam()), Shape(dst), row.window, kind});
      expect_narrow(narrow.forward.writes[0]);
      compare(wide, narrow, kNarrow);
      if (kind == max) compare(wide, narrow, kNarrow, special_values(row.src));
    }
  }
}

// Conversions between f32 and a narrow type, in one pass with a change of layout.
TEST_P(CudaNarrow, ChangeOfType) {
  for (const Shape& shape : std::vector<Shape>{{1}, {7, 5}, {2, 3, 5, 7}, {1, 70, 65, 3}}) {
    SCOPED_TRACE(shape.to_string());
    const std::vector<float> x = normal(static_cast<size_t>(shape.elements()), 1);
    const Given given{{{Kind::input, 0}, bytes_of(x)}};
    const auto converted = [&](const TensorSpec& from, const TensorSpec& to) {
      return values_of(run({cuda::reorder(from, to), {}}, given).at({Kind::output, 0}));
    };
    for (const TensorSpec& from : {plain(shape), cuda::channels_last(shape)}) {
      for (const TensorSpec& to :
           {plain(shape, GetParam()), cuda::channels_last(shape, GetParam())}) {
        EXPECT_EQ(converted(from, to), narrowed(x, GetParam()));
        EXPECT_EQ(converted(to, from), narrowed(x, GetParam()));
        EXPECT_EQ(converted(to, to), narrowed(x, GetParam()));
      }
    }
  }
  EXPECT_THROW(cuda::reorder(plain({3}, DType::i32), plain({3}, GetParam())), Unsupported);
}

TEST_P(CudaNarrow, Convolution) {
  const struct {
    Shape src;
    int64_t filters;
    Window window;
    int64_t groups = 1;
    bool narrow = true;
  } rows[] = {
      {{1, 1, 1, 1}, 1, {}},
      {{2, 3, 5, 7}, 4, {.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
      {{2, 3, 9, 8},
       5,
       {.kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 2}, .pad_end = {2, 1}}},
      {{2, 3, 9, 6}, 5, {.kernel = {2, 3}, .dilation = {3, 2}, .pad_end = {2, 1}}},
      // Without a suitable kernel the result is computed in f32.
      {{1, 4, 6, 5}, 6, {.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}}, 2, false},
  };
  for (const auto& r : rows) {
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(r.src.to_string() + " kernel " + r.window.kernel.to_string());
      ConvolutionProblem p;
      p.src = plain(r.src);
      p.weights = {r.filters, r.src[1] / r.groups, r.window.kernel[0], r.window.kernel[1]};
      p.dst = {r.src[0], r.filters, window_positions(r.window, 0, r.src[2]),
               window_positions(r.window, 1, r.src[3])};
      p.window = r.window;
      p.groups = r.groups;
      p.bias = bias;
      const Kernel wide = cpu_table().convolution(p);
      p.src.dtype = GetParam();
      const Kernel narrow = cuda::convolution(p);
      const DType type = r.narrow ? GetParam() : DType::f32;
      EXPECT_EQ(narrow.forward.reads[0].spec.dtype, type);
      EXPECT_EQ(narrow.forward.reads[1].spec.dtype, type);
      EXPECT_EQ(narrow.forward.writes[0].spec.dtype, type);
      EXPECT_EQ(narrow.backward[0].writes[0].spec.dtype, type);
      EXPECT_EQ(narrow.backward[1].writes[0].spec.dtype, DType::f32);
      compare(wide, narrow, kNarrow);
    }
  }
}

// The gradient of the source is this project's kernel.
TEST_P(CudaNarrow, DilatedConvolutionOfVolumes) {
  ConvolutionProblem p;
  p.src = plain({2, 3, 6, 5, 7});
  p.weights = {4, 3, 2, 3, 2};
  p.window = {{2, 3, 2}, {2, 1, 1}, {1, 2, 3}, {0, 2, 1}, {1, 0, 2}};
  p.dst = {2, 4, window_positions(p.window, 0, 6), window_positions(p.window, 1, 5),
           window_positions(p.window, 2, 7)};
  const Kernel wide = cpu_table().convolution(p);
  p.src.dtype = GetParam();
  const Kernel narrow = cuda::convolution(p);
  EXPECT_EQ(narrow.backward[0].writes[0].spec.dtype, GetParam());
  compare(wide, narrow, kNarrow);
}

TEST_P(CudaNarrow, TransposedConvolution) {
  TransposedConvolutionProblem p;
  p.src = plain({2, 3, 5, 7});
  p.weights = {3, 4, 3, 2};
  p.window = {.kernel = {3, 2}, .stride = {2, 2}, .pad_begin = {1, 0}, .pad_end = {0, 1}};
  p.dst = {2, 4, transposed_size(p.window, 0, 5), transposed_size(p.window, 1, 7)};
  for (const bool bias : {true, false}) {
    p.bias = bias;
    p.src.dtype = DType::f32;
    const Kernel wide = cpu_table().transposed_convolution(p);
    p.src.dtype = GetParam();
    const Kernel narrow = cuda::transposed_convolution(p);
    expect_narrow(narrow.forward.writes[0]);
    EXPECT_EQ(narrow.backward[1].writes[0].spec.dtype, DType::f32);
    compare(wide, narrow, kNarrow);
  }
}

TEST_P(CudaNarrow, FullyConnected) {
  for (const Shape& shape : std::vector<Shape>{{5, 3}, {2, 3, 5, 7}, {2, 40, 1, 1}, {4, 1}}) {
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(shape.to_string());
      const Kernel wide = cpu_table().fully_connected({plain(shape), 7, bias});
      for (const TensorSpec& spec :
           {plain(shape, GetParam()), cuda::channels_last(shape, GetParam())}) {
        const Kernel narrow = cuda::fully_connected({spec, 7, bias});
        // Sums are written as floats. Without a suitable product, floats are used.
        EXPECT_EQ(narrow.forward.reads[0].spec.dtype, shape[1] > 1 ? GetParam() : DType::f32);
        EXPECT_EQ(narrow.forward.writes[0].spec.dtype, DType::f32);
        EXPECT_EQ(narrow.backward[1].writes[0].spec.dtype, DType::f32);
        compare(wide, narrow, kNarrow);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaNarrow, ::testing::Values(DType::bf16, DType::f16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

// Slices that begin at any element.
TEST(CudaKernels, ArraysThatBeginBetweenPacks) {
  std::vector<float> a = normal(40, 1), b = normal(40, 2), sum(40, kNaN);
  for (const size_t from : {0u, 1u, 2u, 3u}) {
    for (const size_t count : {1u, 3u, 4u, 29u}) {
      std::fill(sum.begin(), sum.end(), kNaN);
      cuda::add(a.data() + from, b.data() + 1, sum.data() + 2, count, nullptr);
      for (size_t i = 0; i < sum.size(); ++i) {
        const bool written = i >= 2 && i < 2 + count;
        EXPECT_EQ(std::isnan(sum[i]), !written);
        if (!written) continue;
        EXPECT_EQ(sum[i], a[from + i - 2] + b[1 + i - 2]);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
