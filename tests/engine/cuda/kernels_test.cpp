// The CUDA back end's own kernels, run by the emulation and compared with the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lockstep/engine/kernels/attention/attention.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/elementwise/bias.h"
#include "lockstep/engine/kernels/cuda/philox.h"
#include "lockstep/engine/kernels/cuda/shapes/layout.h"
#include "lockstep/engine/kernels/cuda/windows/padding.h"
#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/clipped_relu.h"
#include "lockstep/engine/kernels/elementwise/dropout.h"
#include "lockstep/engine/kernels/elementwise/multiplication.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/kernels/images/normalize_images.h"
#include "lockstep/engine/kernels/losses/cross_entropy.h"
#include "lockstep/engine/kernels/losses/ctc.h"
#include "lockstep/engine/kernels/losses/mean_squared_error.h"
#include "lockstep/engine/kernels/losses/softmax.h"
#include "lockstep/engine/kernels/reductions/sum.h"
#include "lockstep/engine/kernels/shapes/concatenation.h"
#include "lockstep/engine/kernels/shapes/reshape.h"
#include "lockstep/engine/kernels/windows/pooling.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

const std::vector<Shape>& all_shapes() {
  static const std::vector<Shape> shapes{{1},           {5, 3},        {1, 1, 1, 1},
                                         {2, 3, 5, 7},  {3, 33, 9, 4}, {2, 1, 17, 3},
                                         {4, 40, 1, 1}, {300, 3},      {2, 3, 2, 5, 4}};
  return shapes;
}

// Row-major and, if it differs, channels last.
void for_layouts(const Shape& shape, const std::function<void(const TensorSpec&)>& test) {
  SCOPED_TRACE(shape.to_string());
  test(plain(shape));
  const TensorSpec last = cuda::channels_last(shape);
  if (last.row_major()) return;
  SCOPED_TRACE("channels last");
  test(last);
}

__global__ void nothing() {}

TEST(CudaKernels, MoreBlocksThanAGridHasAreRefused) {
  cuda::launch("nothing", nothing, {.blocks = 3}, nullptr);
  // As 32 bits this would be one block.
  EXPECT_THROW(cuda::launch("nothing", nothing, {.blocks = (int64_t{1} << 32) + 1}, nullptr),
               Unsupported);
}

TEST(CudaKernels, Relu) {
  for (const Shape& shape : all_shapes()) {
    for_layouts(shape, [&](const TensorSpec& spec) {
      const Given given = with_special_values(shape);
      compare(cpu_table().relu({plain(shape)}), cuda::relu({spec}), kSame, given);
      compare(cpu_table().clipped_relu({plain(shape), 0.75}), cuda::clipped_relu({spec, 0.75}),
              kSame, given);
    });
  }
}

TEST(CudaKernels, Activation) {
  using enum ActivationKind;
  for (const auto kind : {leaky_relu, elu, gelu, gelu_tanh, swish, tanh, sigmoid, softplus}) {
    SCOPED_TRACE(static_cast<int>(kind));
    for (const Shape& shape : all_shapes()) {
      for_layouts(shape, [&](const TensorSpec& spec) {
        compare(cpu_table().activation({plain(shape), kind, 0.25}),
                cuda::activation({spec, kind, 0.25}), kClose, with_special_values(shape));
      });
    }
  }
}

TEST(CudaKernels, Addition) {
  for (const Shape& shape : all_shapes()) {
    for_layouts(shape, [&](const TensorSpec& spec) {
      for (const size_t terms : {1u, 2u, 8u, 9u, 17u}) {
        SCOPED_TRACE(terms);
        compare(cpu_table().addition({std::vector<TensorSpec>(terms, plain(shape))}),
                cuda::addition({std::vector<TensorSpec>(terms, spec)}), kSame);
      }
    });
  }
}

TEST(CudaKernels, Multiplication) {
  for (const Shape& shape : all_shapes()) {
    for_layouts(shape, [&](const TensorSpec& spec) {
      for (const size_t factors : {1u, 2u, 8u, 9u, 17u}) {
        SCOPED_TRACE(factors);
        compare(cpu_table().multiplication({std::vector<TensorSpec>(factors, plain(shape))}),
                cuda::multiplication({std::vector<TensorSpec>(factors, spec)}), kSame);
      }
    });
  }
}

TEST(CudaKernels, Accumulate) {
  for (const Shape& shape : all_shapes()) {
    compare({cpu_table().zero(plain(shape)), {}}, {cuda::zero(plain(shape)), {}}, {});
    compare({cpu_table().accumulate(plain(shape)), {}}, {cuda::accumulate(plain(shape)), {}},
            kSame);
  }
}

TEST(CudaKernels, Dropout) {
  for (const Shape& shape : all_shapes()) {
    for_layouts(shape, [&](const TensorSpec& spec) {
      for (const double probability : {0.0, 0.5, 0.9}) {
        SCOPED_TRACE(probability);
        compare(cpu_table().dropout({plain(shape), probability, 77}),
                cuda::dropout({spec, probability, 77}), kSame);
      }
    });
  }
}

TEST(CudaKernels, PhiloxHasTheBitsOfBase) {
  for (uint64_t i = 0; i < 200; ++i) {
    const RandomKey key{i << 40 ^ i, RandomUse::dropout, i * 3, ~i, i << 33};
    const RandomStream host(key);
    const cuda::DeviceRandomStream device(key);
    for (const uint64_t block : {uint64_t{0}, i, i << 35}) {
      const auto a = host.block(block);
      const auto b = device.block(block);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.word));
    }
  }
}

TEST(CudaKernels, Reshape) {
  compare(cpu_table().reshape({plain({2, 3, 5, 7}), {6, 35}}),
          cuda::reshape({plain({2, 3, 5, 7}), {6, 35}}), kSame);
  compare(cpu_table().reshape({plain({1}), {1, 1}}), cuda::reshape({plain({1}), {1, 1}}), kSame);
}

TEST(CudaKernels, Concatenation) {
  const struct {
    std::vector<Shape> src;
    int axis;
  } rows[] = {{{{2, 3, 5, 7}, {2, 1, 5, 7}, {2, 40, 5, 7}}, 1},
              {{{2, 3, 5, 7}, {1, 3, 5, 7}}, 0},
              {{{2, 3, 5, 7}, {2, 3, 2, 7}}, 2},
              {{{2, 3, 5, 7}, {2, 3, 5, 1}}, 3},
              {{{2, 3, 1, 1}, {2, 5, 1, 1}}, 1},
              {{{2, 3, 1, 1}, {2, 3, 1, 4}}, 3},
              {{{2, 1, 5, 7}, {2, 1, 5, 7}}, 1},
              {{{4, 3}, {4, 300}}, 1},
              {{{4, 3}, {1, 3}}, 0},
              {{{4, 3, 2}, {4, 1, 2}}, 1},
              {{{2, 3, 2, 5, 4}, {2, 4, 2, 5, 4}}, 1},
              {{{2, 3, 2, 5, 4}, {2, 3, 3, 5, 4}}, 2},
              {{{7}}, 0}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.src.front().to_string() + " axis " + std::to_string(row.axis));
    ConcatenationProblem p{{}, row.axis};
    for (const Shape& s : row.src) p.src.push_back(plain(s));
    compare(cpu_table().concatenation(p), cuda::concatenation(p), kSame);
  }
}

// The fixed tree gives the CPU's bits, with one to three launches.
TEST(CudaKernels, Sum) {
  for (const int64_t n : {1, 2, 3, 7, 31, 255, 256, 257, 511, 512, 513, 1023, 1025, 5000, 300001}) {
    SCOPED_TRACE(n);
    const SumProblem p{plain({n}), 0.1};
    compare(cpu_table().sum(p), cuda::sum(p), kSame);
  }
}

TEST(CudaKernels, Softmax) {
  for (const Shape& shape : std::vector<Shape>{{1, 1},
                                               {5, 3},
                                               {3, 10},
                                               {2, 33},
                                               {4, 256},
                                               {3, 1000},
                                               {2, 3, 5, 7},
                                               {2, 70, 3, 1},
                                               {2, 3, 2, 5, 4}}) {
    SCOPED_TRACE(shape.to_string());
    compare(cpu_table().softmax({plain(shape)}), cuda::softmax({plain(shape)}), kClose);
    Given given;
    std::vector<float> x = normal(static_cast<size_t>(shape.elements()), 1);
    for (float& v : x) v *= 50;
    x.back() = kNaN;
    given[{Kind::input, 0}] = bytes_of(x);
    compare(cpu_table().softmax({plain(shape)}), cuda::softmax({plain(shape)}), kClose, given);
  }
}

TEST(CudaKernels, CrossEntropy) {
  for (const bool from_logits : {true, false}) {
    for (const Shape& shape : std::vector<Shape>{{1, 1}, {5, 3}, {7, 10}, {4, 300}, {600, 2}}) {
      SCOPED_TRACE(shape.to_string() + (from_logits ? " logits" : " probabilities"));
      std::vector<float> scores = normal(static_cast<size_t>(shape.elements()), 1);
      if (!from_logits) {
        for (float& s : scores) s = std::abs(s) + 0.01f;
      }
      std::vector<int32_t> labels;
      for (int64_t n = 0; n < shape[0]; ++n) {
        labels.push_back(static_cast<int32_t>((n * 7) % shape[1]));
      }
      labels.back() = static_cast<int32_t>(shape[1]);
      if (shape[0] > 3) labels[2] = -1;
      compare(cpu_table().cross_entropy({plain(shape), from_logits}),
              cuda::cross_entropy({plain(shape), from_logits}), kClose,
              {{{Kind::input, 0}, bytes_of(scores)}, {{Kind::input, 1}, bytes_of(labels)}});
      std::vector<float> shares = normal(scores.size(), 2);
      for (size_t i = 0; i < shares.size(); i += 3) shares[i] = 0;
      compare(cpu_table().cross_entropy({plain(shape), from_logits, true}),
              cuda::cross_entropy({plain(shape), from_logits, true}), kClose,
              {{{Kind::input, 0}, bytes_of(scores)}, {{Kind::input, 1}, bytes_of(shares)}});
    }
  }
}

TEST(CudaKernels, MeanSquaredError) {
  for (const Shape& shape : all_shapes()) {
    SCOPED_TRACE(shape.to_string());
    compare(cpu_table().mean_squared_error({plain(shape)}),
            cuda::mean_squared_error({plain(shape)}), kClose);
  }
}

TEST(CudaKernels, Attention) {
  const struct {
    int64_t n, queries, keys, heads, size, value_size;
    std::vector<int32_t> key_lengths = {}, query_lengths = {};
    bool causal = false;
    double dropout = 0;
    bool from_end = false;
  } all[] = {{1, 1, 1, 1, 1, 1},
             {2, 5, 7, 2, 3, 4},
             {3, 6, 6, 1, 4, 4, {0, 6, 3}, {0, 6, 3}, true},
             {3, 6, 6, 1, 4, 4, {-1, 9, 3}, {2, 9, -5}},
             {2, 3, 5, 2, 4, 2, {}, {2, 0}, true},
             {2, 4, 300, 1, 5, 150, {300, 130}, {}, false, 0.3},
             {1, 150, 20, 2, 4, 3, {}, {140}, false, 0.5},
             {1, 135, 135, 1, 2, 3, {}, {}, true, 0.5},
             {4, 5, 9, 2, 4, 3, {9, 5, 3, 0}, {5, 2, 5, 4}, true, 0, true},
             {2, 140, 300, 1, 4, 4, {}, {}, true, 0.5, true}};
  for (const auto& one : all) {
    SCOPED_TRACE(std::to_string(one.queries) + " queries of " + std::to_string(one.size));
    const AttentionProblem p{plain({one.n, one.queries, one.heads * one.size}),
                             plain({one.n, one.keys, one.heads * one.size}),
                             plain({one.n, one.keys, one.heads * one.value_size}),
                             one.heads,
                             one.causal,
                             one.from_end,
                             0.7,
                             one.dropout,
                             77,
                             !one.key_lengths.empty(),
                             !one.query_lengths.empty()};
    Given given;
    int at = 3;
    for (const auto& lengths : {one.key_lengths, one.query_lengths}) {
      if (!lengths.empty()) given[{Kind::input, at++}] = bytes_of(lengths);
    }
    compare(cpu_table().attention(p), cuda::attention(p), kClose, given);
  }
}

TEST(CudaKernels, Ctc) {
  const std::vector<int32_t> lengths{9, 0, -2, 30, 3}, label_lengths{3, 1, 0, 2, 4};
  const std::vector<int32_t> labels{1, 1, 3, -1, 2, 0, 0, 0, 0, 0, 0, 0, 4, 2, 9, 9, 1, 1, 1, 1};
  for (const bool zero : {false, true}) {
    const CtcProblem p{plain({5, 9, 5}), 4, 0, zero};
    compare(cpu_table().ctc(p), cuda::ctc(p), kSame,
            {{{Kind::input, 1}, bytes_of(lengths)},
             {{Kind::input, 2}, bytes_of(labels)},
             {{Kind::input, 3}, bytes_of(label_lengths)}});
  }
}

TEST(CudaKernels, NormalizeImages) {
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1, 1},
                                               {2, 3, 5, 7},
                                               {3, 1, 4, 6},
                                               {2, 40, 1, 1},
                                               {1, 3, 33, 9},
                                               {2, 3, 4, 5, 6},
                                               {5, 17},
                                               {1, 1}}) {
    SCOPED_TRACE(shape.to_string());
    compare(cpu_table().normalize_images({plain(shape)}), cuda::normalize_images({plain(shape)}),
            kSame);
    std::vector<uint8_t> pixels;
    for (int64_t i = 0; i < shape.elements(); ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
    const NormalizeImagesProblem p{plain(shape, DType::u8)};
    compare(cpu_table().normalize_images(p), cuda::normalize_images(p), kSame,
            {{{Kind::input, 0}, bytes_of(pixels)}});
  }
}

PoolingProblem pooling_problem(const Shape& src, const Window& w, PoolingProblem::Kind kind) {
  std::vector<int64_t> dst{src[0], src[1]};
  for (int a = 0; a < w.axes(); ++a) dst.push_back(window_positions(w, a, src[2 + a]));
  return {plain(src), Shape(dst), w, kind};
}

TEST(CudaKernels, Pooling) {
  const struct {
    Shape src;
    Window window;
  } rows[] = {
      {{1, 1, 1, 1}, {}},
      {{2, 3, 5, 7}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{2, 8, 5, 7}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{1, 12, 2, 9}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{2, 4, 5, 7}, {.kernel = {2, 2}, .stride = {2, 2}, .pad_end = {1, 1}}},
      {{2, 33, 9, 4}, {.kernel = {3, 2}, .stride = {2, 1}, .pad_begin = {1, 0}, .pad_end = {1, 1}}},
      {{2, 3, 9, 8}, {.kernel = {3, 3}, .stride = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
      {{2, 3, 9, 8}, {.kernel = {1, 1}, .stride = {3, 2}}},
      {{2, 3, 11, 8}, {.kernel = {3, 2}, .stride = {2, 3}, .dilation = {2, 3}}},
      {{1, 5, 11, 8},
       {.kernel = {3, 3},
        .stride = {2, 2},
        .dilation = {2, 2},
        .pad_begin = {2, 2},
        .pad_end = {1, 2}}},
      {{3, 4, 6, 5}, {.kernel = {6, 5}}},
      {{1, 2, 20, 18}, {.kernel = {20, 18}}},  // too large for positions in one byte
      {{2, 3, 9}, {{3}, {2}, {1}, {1}, {0}}},
      {{3, 1, 8}, {{2}, {1}, {2}, {0}, {1}}},
      {{1, 1, 1, 1, 1}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
      {{2, 3, 4, 6, 5}, {{2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
      {{2, 3, 5, 6, 7}, {{3, 2, 3}, {1, 2, 3}, {2, 1, 1}, {2, 1, 1}, {1, 0, 1}}},
      {{1, 2, 8, 7, 9}, {{7, 6, 8}, {1, 1, 1}, {1, 1, 1}, {0, 1, 0}, {1, 0, 0}}},  // 336 positions
  };
  for (const auto& row : rows) {
    using enum PoolingProblem::Kind;
    for (const auto kind : {max, average_with_padding, average_without_padding}) {
      SCOPED_TRACE(row.src.to_string() + " kernel " + row.window.kernel.to_string() + " kind " +
                   std::to_string(static_cast<int>(kind)));
      const PoolingProblem p = pooling_problem(row.src, row.window, kind);
      compare(cpu_table().pooling(p), cuda::pooling(p), kClose);
      if (kind != max) continue;
      // All elements are equal: the first one gets the gradient.
      std::vector<float> x = normal(static_cast<size_t>(row.src.elements()), 1);
      for (float& v : x) v = v > 0 ? 1.0f : -1.0f;
      compare(cpu_table().pooling(p), cuda::pooling(p), kClose, {{{Kind::input, 0}, bytes_of(x)}});
      // NaN and infinities as on the CPU.
      const float special[] = {kNaN, -INFINITY, INFINITY, kNaN};
      for (size_t i = 0; i < x.size(); i += 3) x[i] = special[i / 3 % 4];
      compare(cpu_table().pooling(p), cuda::pooling(p), kClose, {{{Kind::input, 0}, bytes_of(x)}});
    }
  }
}

TEST(CudaKernels, ChangeOfLayout) {
  for (const Shape& shape : std::vector<Shape>{{2, 3, 5, 7},
                                               {3, 33, 9, 4},
                                               {1, 70, 65, 3},
                                               {1, 2, 1, 2},
                                               {40, 32, 3, 3},
                                               {2, 5, 3, 4, 7}}) {
    for (const DType dtype : {DType::f32, DType::u8, DType::i32, DType::i64}) {
      SCOPED_TRACE(shape.to_string() + " " + std::string(name_of(dtype)));
      const TensorSpec last = cuda::channels_last(shape, dtype);
      ASSERT_FALSE(last.row_major());
      Bytes x(last.bytes());
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::byte>(i * 31 + i / 256);
      const Given given{{{Kind::input, 0}, x}};
      // The reference is the layout's own conversion on the host.
      for (const auto& [from, to] : {std::pair{plain(shape, dtype), last},
                                     std::pair{last, plain(shape, dtype)}, std::pair{last, last}}) {
        const auto results = run({cuda::reorder(from, to), {}}, given);
        EXPECT_TRUE(results.at({Kind::output, 0}) == x);
      }
    }
  }
  // (n, c, y, x) lies at ((n * h + y) * w + x) * c_count + c.
  const TensorSpec last = cuda::channels_last({2, 3, 4, 5});
  std::vector<float> row_major(120), memory(120);
  for (size_t i = 0; i < 120; ++i) row_major[i] = static_cast<float>(i);
  last.layout->from_row_major(row_major.data(), memory.data());
  EXPECT_EQ(memory[((1 * 4 + 2) * 5 + 3) * 3 + 1], row_major[((1 * 3 + 1) * 4 + 2) * 5 + 3]);
}

TEST(CudaKernels, SpecsOfChannelsLast) {
  EXPECT_TRUE(cuda::channels_last({2, 3}).row_major());
  EXPECT_TRUE(cuda::channels_last({2, 1, 4, 5}).row_major());
  EXPECT_TRUE(cuda::channels_last({2, 3, 1, 1}).row_major());
  const TensorSpec a = cuda::channels_last({2, 3, 4, 5});
  EXPECT_TRUE(a == cuda::channels_last({2, 3, 4, 5}));
  EXPECT_FALSE(a == cuda::channels_last({2, 3, 5, 4}));
  EXPECT_FALSE(a == a.plain());
  EXPECT_EQ(a.bytes(), 480u);
  EXPECT_EQ(a.to_string(), "2x3x4x5 f32 nhwc");
}

TEST(CudaKernels, Bias) {
  for (const auto& layout : {cuda::ChannelLayout{1, 1, 1}, cuda::ChannelLayout{35, 33, 1},
                             cuda::ChannelLayout{30, 4, 15}, cuda::ChannelLayout{9000, 3, 1},
                             cuda::ChannelLayout{2, 1100, 1}, cuda::ChannelLayout{700, 20, 1}}) {
    SCOPED_TRACE(std::to_string(layout.rows) + "x" + std::to_string(layout.channels));
    const auto size = static_cast<size_t>(layout.rows * layout.channels);
    const std::vector<float> bias = normal(static_cast<size_t>(layout.channels), 1);
    const std::vector<float> dy = normal(size, 2);
    std::vector<float> y = dy, expected = dy;
    std::vector<double> sums(bias.size());
    for (size_t i = 0; i < size; ++i) {
      const auto c = i / static_cast<size_t>(layout.inner) % bias.size();
      expected[i] += bias[c];
      sums[c] += static_cast<double>(dy[i]);
    }
    cuda::launch_bias(layout, bias.data(), y.data(), nullptr);
    EXPECT_EQ(y, expected);
    std::vector<float> gradient(bias.size(), kNaN), exact(sums.begin(), sums.end());
    Bytes scratch(cuda::bias_gradient_scratch(layout, DType::f32));
    cuda::launch_bias_gradient(layout, dy.data(), gradient.data(), scratch.data(), nullptr);
    EXPECT_LE(difference(gradient, exact), kClose);
  }
}

TEST(CudaKernels, Padding) {
  const cuda::Volumes inner{2, 2, 3, 4, 5};
  const cuda::Frame frame{0, 1, 0, 1, 2, 3};
  const cuda::Volumes outer = frame.around(inner);
  EXPECT_EQ(outer.planes, 3);
  EXPECT_EQ(outer.rows, 6);
  EXPECT_EQ(outer.columns, 7);
  const std::vector<float> x = normal(2 * 2 * 3 * 4 * 5, 1);
  std::vector<float> framed(2 * 3 * 6 * 7 * 5, kNaN), back(x.size(), kNaN);
  cuda::launch_pad(inner, frame, sizeof(float), x.data(), framed.data(), nullptr);
  for (size_t i = 0; i < framed.size(); ++i) {
    const size_t c = i % 5, column = i / 5 % 7, row = i / 35 % 6, plane = i / 210 % 3, n = i / 630;
    const bool inside = plane < 2 && row >= 1 && row < 4 && column < 4;
    const size_t from = (((n * 2 + plane) * 3 + row - 1) * 4 + column) * 5 + c;
    EXPECT_EQ(framed[i], inside ? x[from] : 0.0f);
  }
  cuda::launch_crop(inner, frame, sizeof(float), framed.data(), back.data(), nullptr);
  EXPECT_EQ(back, x);
}

// Tests the emulation: misuse that a GPU would refuse or leave undefined is an error here.
TEST(CudaEmulation, RefusesWhatAGpuWould) {
  EXPECT_THROW(emulation::launch(0, 32, 0, [] {}), std::logic_error);
  EXPECT_THROW(emulation::launch(1, 2048, 0, [] {}), std::logic_error);
  EXPECT_THROW(emulation::launch(1, 32, 0,
                                 [] {
                                   if (threadIdx.x < 7) __syncthreads();
                                 }),
               std::logic_error);
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
