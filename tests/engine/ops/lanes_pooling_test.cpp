// Pooling of images in lanes, called directly, because ops choose it only on some processors.
#include <gtest/gtest.h>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/pooling.h"
#include "lockstep/engine/kernels/windows/pooling.h"
#include "tests/engine/ops/harness.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest {
namespace {

using kernels::PoolingProblem;
using kernels::Window;
using kernels::cpu::lanes_pooling;
using kernels::cpu::lanes_spec;
using kernels::cpu::pools_in_lanes;
using lockstep::Size2d;
using Kind = PoolingProblem::Kind;

Shape pooled(const Shape& x, const Window& w) {
  return {x[0], x[1], kernels::window_positions(w, 0, x[2]), kernels::window_positions(w, 1, x[3])};
}

// Rounded to the type.
Array rounded(Array x, DType dtype) {
  for (double& v : x.values) {
    const auto number = static_cast<float>(v);
    v = static_cast<double>(dtype == DType::bf16 ? to_float(to_bfloat16(number)) : number);
  }
  return x;
}

void check(const Shape& shape, const Window& w, Kind kind, reference::Pooling as,
           DType dtype = DType::f32) {
  const PoolingProblem problem{lanes_spec(shape, dtype), pooled(shape, w), w, kind};
  // Shorter vectors hold fewer images than this processor's kernels would take.
  ASSERT_EQ(pools_in_lanes(problem), shape[0] % kernels::cpu::least_images(dtype) == 0);
  const kernels::Kernel kernel = lanes_pooling(problem);
  const TensorSpec dst = lanes_spec(problem.dst, dtype);
  const Array x = rounded(random_array(shape.dims(), 1), dtype),
              dy = rounded(random_array(problem.dst.dims(), 2), dtype);
  const double error = dtype == DType::bf16 ? 3e-3 : 1e-6;
  const Tensor xs = convert(tensor_of(x), problem.src), dys = convert(tensor_of(dy), dst);
  Tensor y(dst), dx(problem.src);
  ASSERT_EQ(kernel.forward.scratch_bytes, 0u);
  std::vector<std::byte> marks(static_cast<size_t>(problem.dst.elements()));
  void *const forward_reads[] = {xs.raw()}, *const forward_writes[] = {y.raw(), marks.data()};
  kernel.forward.bind({forward_reads, forward_writes})({});
  void *const backward_reads[] = {dys.raw(), marks.data()}, *const backward_writes[] = {dx.raw()};
  kernel.backward[0].bind({backward_reads, backward_writes})({});

  const reference::Window window{.stride = {w.stride[0], w.stride[1]},
                                 .before = {w.pad_begin[0], w.pad_begin[1]},
                                 .after = {w.pad_end[0], w.pad_end[1]}};
  EXPECT_LE(
      relative_error(array_of(y), reference::pooling(x, as, w.kernel[0], w.kernel[1], window)),
      error);
  EXPECT_LE(relative_error(array_of(dx),
                           reference::pooling_diff(x, as, w.kernel[0], w.kernel[1], window, dy)),
            error);
}

// Windows that do not overlap, or a single window.
TEST(LanesPooling, InBf16MatchesTheReference) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const auto window = [](Size2d kernel, Size2d stride, Size2d pad) {
    return Window{.kernel = {kernel[0], kernel[1]},
                  .stride = {stride[0], stride[1]},
                  .dilation = {1, 1},
                  .pad_begin = {pad[0], pad[1]},
                  .pad_end = {pad[0], pad[1]}};
  };
  for (const Shape& shape : {Shape{16, 3, 7, 9}, Shape{48, 1, 5, 7}}) {
    for (const Window& w :
         {window({2, 2}, {2, 2}, {0, 0}), window({2, 3}, {3, 3}, {1, 2}),
          window({shape[2], shape[3]}, {1, 1}, {0, 0}), window({1, 1}, {1, 1}, {0, 0})}) {
      check(shape, w, Kind::max, reference::Pooling::max, DType::bf16);
      check(shape, w, Kind::average_with_padding, reference::Pooling::average_with_padding,
            DType::bf16);
      check(shape, w, Kind::average_without_padding, reference::Pooling::average_without_padding,
            DType::bf16);
    }
  }
  const Shape shape{16, 2, 9, 9};
  const Window overlapping = window({3, 3}, {2, 2}, {0, 0});
  EXPECT_FALSE(pools_in_lanes(
      {lanes_spec(shape, DType::bf16), pooled(shape, overlapping), overlapping, Kind::max}));
}

TEST(LanesPooling, MatchesTheReference) {
  const std::vector<Window> windows{{.kernel = {2, 2},
                                     .stride = {2, 2},
                                     .dilation = {1, 1},
                                     .pad_begin = {0, 0},
                                     .pad_end = {0, 0}},
                                    {.kernel = {3, 2},
                                     .stride = {1, 3},
                                     .dilation = {1, 1},
                                     .pad_begin = {2, 0},
                                     .pad_end = {0, 1}},
                                    {.kernel = {1, 1},
                                     .stride = {1, 1},
                                     .dilation = {1, 1},
                                     .pad_begin = {0, 0},
                                     .pad_end = {0, 0}},
                                    {.kernel = {5, 7},
                                     .stride = {3, 2},
                                     .dilation = {1, 1},
                                     .pad_begin = {1, 3},
                                     .pad_end = {2, 3}}};
  for (const Shape& shape : {Shape{16, 1, 7, 9}, Shape{48, 3, 5, 7}, Shape{16, 2, 6, 10},
                             Shape{8, 2, 7, 6}, Shape{24, 1, 6, 8}}) {
    for (const Window& w : windows) {
      SCOPED_TRACE(shape.to_string() + " by " + std::to_string(w.kernel[0]) + " x " +
                   std::to_string(w.kernel[1]));
      check(shape, w, Kind::max, reference::Pooling::max);
      check(shape, w, Kind::average_with_padding, reference::Pooling::average_with_padding);
      check(shape, w, Kind::average_without_padding, reference::Pooling::average_without_padding);
    }
  }
}

TEST(LanesPooling, TakesWhatItCanDo) {
  const auto takes = [](const TensorSpec& src, Window w, Kind kind) {
    return pools_in_lanes({src, pooled(src.shape, w), w, kind});
  };
  const auto window = [](int64_t rows, int64_t columns, int64_t dilation) {
    return Window{.kernel = {rows, columns},
                  .stride = {1, 1},
                  .dilation = {dilation, dilation},
                  .pad_begin = {0, 0},
                  .pad_end = {0, 0}};
  };
  const Shape shape{16, 2, 40, 40};
  EXPECT_TRUE(takes(lanes_spec(shape), window(15, 17, 1), Kind::max));
  EXPECT_FALSE(takes(lanes_spec(shape), window(16, 16, 1), Kind::max));
  EXPECT_TRUE(takes(lanes_spec(shape), window(16, 16, 1), Kind::average_with_padding));
  EXPECT_FALSE(takes(lanes_spec(shape), window(2, 2, 2), Kind::max));
  const auto row_major = [&](const Shape& of, DType dtype) {
    return takes({of, dtype, nullptr}, window(2, 2, 1), Kind::max);
  };
  EXPECT_EQ(row_major(shape, DType::f32), kernels::cpu::lanes_are_chosen());
  EXPECT_FALSE(row_major(shape, DType::bf16));
  EXPECT_FALSE(row_major(shape.with_batch(17), DType::f32));
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const Target only(target);
    const bool eight = target == HWY_AVX2;
    EXPECT_EQ(takes(lanes_spec(shape.with_batch(24)), window(2, 2, 1), Kind::max), eight);
    EXPECT_EQ(kernels::cpu::least_images(DType::f32), eight ? 8 : 16);
    EXPECT_EQ(kernels::cpu::least_images(DType::bf16), 16);
  }
}

}  // namespace
}  // namespace lockstep::optest
