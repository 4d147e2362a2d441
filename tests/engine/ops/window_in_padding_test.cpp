// Windows with positions that meet only padding. The gradients of their weights are zeros, which a
// kernel has to write.
#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest {
namespace {

using kernels::ConvolutionProblem;
using kernels::Window;
using kernels::cpu::leaves_gradients_unwritten;
using lockstep::Size2d;

bool some_place_meets_padding_alone(const Window& w, int64_t size, int64_t positions) {
  for (int64_t place = 0; place < w.kernel[0]; ++place) {
    bool met = false;
    for (int64_t o = 0; o < positions; ++o) {
      const int64_t at = o * w.stride[0] + place * w.dilation[0] - w.pad_begin[0];
      met |= at >= 0 && at < size;
    }
    if (!met) return true;
  }
  return false;
}

TEST(MeetsOnlyPadding, AgreesWithTryingAllPositionsOfAllSmallWindows) {
  int64_t found = 0, all = 0;
  for (int64_t size = 1; size <= 6; ++size) {
    for (int64_t kernel = 1; kernel <= 5; ++kernel) {
      for (int64_t stride = 1; stride <= 5; ++stride) {
        for (int64_t dilation = 1; dilation <= 3; ++dilation) {
          for (int64_t before = 0; before <= 7; ++before) {
            for (int64_t after = 0; after <= 7; ++after) {
              const Window w{{kernel}, {stride}, {dilation}, {before}, {after}};
              const int64_t positions = kernels::window_positions(w, 0, size);
              const bool wanted = some_place_meets_padding_alone(w, size, positions);
              ASSERT_EQ(kernels::meets_only_padding(w, 0, size, positions), wanted)
                  << size << " elements, kernel " << kernel << ", stride " << stride
                  << ", dilation " << dilation << ", padding " << before << " and " << after;
              found += wanted;
              ++all;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(all - found, 1000);
}

// Padding that keeps ceil(size / stride) positions, with an odd element at the end.
void pad_to_same(Window& w, size_t axis, int64_t size) {
  const int64_t positions = (size + w.stride[axis] - 1) / w.stride[axis];
  const int64_t total =
      std::max<int64_t>(0, (positions - 1) * w.stride[axis] + w.kernel[axis] - size);
  w.pad_begin[axis] = total / 2;
  w.pad_end[axis] = total - total / 2;
}

ConvolutionProblem same_convolution(const Shape& x, int64_t filters, const Size2d& kernel,
                                    const Size2d& stride, DType dtype) {
  Window w{{kernel[0], kernel[1]}, {stride[0], stride[1]}};
  pad_to_same(w, 0, x[2]);
  pad_to_same(w, 1, x[3]);
  const Shape y{x[0], filters, kernels::window_positions(w, 0, x[2]),
                kernels::window_positions(w, 1, x[3])};
  return {{x, dtype, nullptr}, {filters, x[1], kernel[0], kernel[1]}, y, w, 1, false};
}

bool fenced(int64_t width, int64_t kernel, int64_t stride) {
  const auto p = same_convolution({16, 16, 28, width}, 16, {3, kernel}, {1, stride}, DType::f32);
  return leaves_gradients_unwritten(p.window, p.src.shape, p.dst);
}

TEST(UnwrittenGradients, AreExpectedWhereTheyWereSeenAndNotInOrdinaryConvolutions) {
  for (int64_t kernel : {2, 3, 5}) {
    for (int64_t stride : {2, 3, 4}) EXPECT_TRUE(fenced(1, kernel, stride)) << kernel << stride;
  }
  for (int64_t stride : {3, 4}) {
    EXPECT_TRUE(fenced(2, 3, stride)) << stride;
    EXPECT_TRUE(fenced(2, 5, stride)) << stride;
  }
  EXPECT_TRUE(fenced(3, 5, 4));
  for (int64_t width : {7, 8, 14, 28, 32, 224}) {
    for (int64_t kernel : {1, 2, 3, 5, 7}) {
      for (int64_t stride : {1, 2, 3}) EXPECT_FALSE(fenced(width, kernel, stride)) << width;
    }
  }
  for (int64_t width = 1; width <= 4; ++width) EXPECT_FALSE(fenced(width, 3, 1)) << width;
  // Rows, and the one or three axes of other convolutions.
  const Window rows{{3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}};
  EXPECT_TRUE(leaves_gradients_unwritten(rows, {4, 16, 1, 8}, {4, 16, 1, 8}));
  const Window line{{3}, {2}, {1}, {1}, {1}};
  EXPECT_TRUE(leaves_gradients_unwritten(line, {4, 16, 1}, {4, 16, 1}));
  EXPECT_FALSE(leaves_gradients_unwritten(line, {4, 16, 3}, {4, 16, 2}));
  const Window space{{1, 1, 3}, {1, 1, 2}, {1, 1, 1}, {0, 0, 1}, {0, 0, 1}};
  EXPECT_TRUE(leaves_gradients_unwritten(space, {4, 16, 8, 8, 1}, {4, 16, 8, 8, 1}));
  const Window deep{{3, 1, 1}, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 0, 0}};
  EXPECT_TRUE(leaves_gradients_unwritten(deep, {1, 33, 4, 7, 8}, {1, 20, 2, 7, 8}));
  const Window inside{{2, 1, 1}, {2, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}};
  EXPECT_FALSE(leaves_gradients_unwritten(inside, {1, 33, 4, 7, 8}, {1, 20, 2, 7, 8}));
}

// Runs a backward pass whose results and scratch memory are initially filled with one byte value.
Array weights_gradient(const kernels::Pass& pass, const Array& x, const Array& dy, int poison) {
  std::vector<Tensor> reads, writes;
  std::vector<void*> r, w;
  for (const auto& o : pass.reads) {
    const bool image = o.kind == kernels::Operand::Kind::input;
    reads.push_back(convert(tensor_of(image ? x : dy), o.spec));
    r.push_back(reads.back().raw());
  }
  for (const auto& o : pass.writes) {
    writes.push_back(Tensor(o.spec));
    std::memset(writes.back().raw(), poison, o.spec.bytes());
    w.push_back(writes.back().raw());
  }
  std::vector<std::byte> scratch(pass.scratch_bytes + 64, static_cast<std::byte>(poison));
  auto* const aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
  pass.bind({r, w, aligned})({});
  return array_of(writes[0]);
}

void check_weights_gradients(DType dtype) {
  // By norm; Winograd's transforms round to bf16, too.
  const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
  for (int64_t n : {16, 9}) {
    for (int64_t height : {1, 5}) {
      for (int64_t width : {1, 2, 3, 5}) {
        const Array x = array_of(convert(convert(tensor_of(random_array({n, 16, height, width}, 1)),
                                                 {{n, 16, height, width}, dtype, nullptr}),
                                         {{n, 16, height, width}, DType::f32, nullptr}));
        for (int64_t extent : {2, 3, 5}) {
          for (int64_t sy : {1, 2}) {
            for (int64_t sx : {1, 2, 3, 4}) {
              SCOPED_TRACE(std::to_string(n) + " images of " + std::to_string(height) + "x" +
                           std::to_string(width) + ", kernel " + std::to_string(extent) +
                           ", strides " + std::to_string(sy) + " and " + std::to_string(sx));
              const ConvolutionProblem p =
                  same_convolution({n, 16, height, width}, 16, {extent, extent}, {sy, sx}, dtype);
              const kernels::Kernel kernel = kernels::table_for({}).convolution(p);
              const kernels::Pass& pass = kernel.backward.back();
              const Array dy = array_of(convert(
                  convert(tensor_of(random_array(p.dst.dims(), 2)), {p.dst, dtype, nullptr}),
                  {p.dst, DType::f32, nullptr}));
              const Array nan = weights_gradient(pass, x, dy, 0xff),
                          huge = weights_gradient(pass, x, dy, 0x71);
              EXPECT_EQ(nan.values, huge.values);
              reference::Window w{.stride = {sy, sx},
                                  .before = {p.window.pad_begin[0], p.window.pad_begin[1]},
                                  .after = {p.window.pad_end[0], p.window.pad_end[1]}};
              EXPECT_LE(relative_error(nan, reference::convolution_diff_weights(
                                                x, Array(p.weights.dims()), w, dy)),
                        tolerance);
            }
          }
        }
      }
    }
  }
}

void check_deep_windows(DType dtype) {
  const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
  for (int64_t depth : {4, 5}) {
    for (int64_t kernel : {2, 3}) {
      for (int64_t stride : {1, 2, 3, 4}) {
        for (int64_t before : {0, 1, 2}) {
          const Window w{{kernel, 1, 2}, {stride, 2, 1}, {1, 1, 1}, {before, 0, 0}, {1, 0, 1}};
          const Shape x{2, 33, depth, 7, 8};
          const ConvolutionProblem p{
              {x, dtype, nullptr},
              {20, 33, kernel, 1, 2},
              {2, 20, kernels::window_positions(w, 0, depth), kernels::window_positions(w, 1, 7),
               kernels::window_positions(w, 2, 8)},
              w,
              1,
              false};
          SCOPED_TRACE("depth " + std::to_string(depth) + ", " + w.kernel.to_string() +
                       ", stride " + std::to_string(stride) + ", padding " +
                       std::to_string(before));
          const auto as = [&](const Shape& shape, int seed) {
            const Tensor exact = tensor_of(random_array(shape.dims(), seed));
            return array_of(convert(convert(exact, {shape, dtype, nullptr}), exact.spec()));
          };
          const Array images = as(x, 1), dy = as(p.dst, 2);
          const auto gradient = [&](const ConvolutionProblem& problem, int poison) {
            return weights_gradient(kernels::table_for({}).convolution(problem).backward.back(),
                                    images, dy, poison);
          };
          ConvolutionProblem in_f32 = p;
          in_f32.src = {x, DType::f32, nullptr};
          EXPECT_EQ(gradient(p, 0xff).values, gradient(p, 0x71).values);
          EXPECT_LE(relative_error(gradient(p, 0xff), gradient(in_f32, 0)), tolerance);
        }
      }
    }
  }
}

TEST(UnwrittenGradients, DoNotOccurInF32) {
  check_weights_gradients(DType::f32);
  check_deep_windows(DType::f32);
}

TEST(UnwrittenGradients, DoNotOccurInBf16) {
  if (!kernels::table_for({}).bf16) {
    GTEST_SKIP() << "no bf16 instructions: gradients in bf16 were not computed";
  }
  check_weights_gradients(DType::bf16);
  check_deep_windows(DType::bf16);
}

}  // namespace
}  // namespace lockstep::optest
