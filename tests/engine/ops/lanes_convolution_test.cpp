// Convolution of images in lanes with every instruction set of this processor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/convolution.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/weights.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/winograd.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/engine/kernels/windows/window.h"
#include "tests/engine/ops/harness.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest {
namespace {

using kernels::cpu::lanes_weights_spec;
using kernels::cpu::LanesConvolution;
using kernels::cpu::LanesWinograd;

constexpr kernels::Window kSame{.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}};

// Aligned as kernels require.
struct Memory {
  explicit Memory(size_t count)
      : data(static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64)),
             std::free) {
    std::fill_n(data.get(), count, 1e30f);  // values that a kernel must not read before writing
  }
  std::unique_ptr<float[], void (*)(void*)> data;
};

void put(const Memory& to, int64_t i, double value, DType dtype) {
  const auto at = static_cast<size_t>(i);
  const auto number = static_cast<float>(value);
  if (dtype == DType::bf16) {
    reinterpret_cast<BFloat16*>(to.data.get())[at] = to_bfloat16(number);
  } else {
    to.data[at] = number;
  }
}
double get(const Memory& from, int64_t i, DType dtype) {
  const auto at = static_cast<size_t>(i);
  return static_cast<double>(dtype == DType::bf16
                                 ? to_float(reinterpret_cast<BFloat16*>(from.data.get())[at])
                                 : from.data[at]);
}

// n x c x h x w to c x h x w x n and back.
Memory in_lanes(const Array& x, DType dtype) {
  Memory out(static_cast<size_t>(x.count()));
  const int64_t n = x.dim(0), plane = x.count() / n;
  for (int64_t i = 0; i < x.count(); ++i) put(out, i % plane * n + i / plane, x[i], dtype);
  return out;
}
Array from_lanes(const Memory& from, std::vector<int64_t> dims, DType dtype) {
  Array out(std::move(dims));
  const int64_t n = out.dim(0), plane = out.count() / n;
  for (int64_t i = 0; i < out.count(); ++i) {
    out[i] = get(from, i % plane * n + i / plane, dtype);
  }
  return out;
}
// Rounded to the type.
Array held(Array x, DType dtype) {
  for (double& v : x.values) {
    const auto number = static_cast<float>(v);
    v = static_cast<double>(dtype == DType::bf16 ? to_float(to_bfloat16(number)) : number);
  }
  return x;
}
Array plain(const Memory& from, std::vector<int64_t> dims) {
  Array out(std::move(dims));
  for (int64_t i = 0; i < out.count(); ++i) {
    out[i] = static_cast<double>(from.data[static_cast<size_t>(i)]);
  }
  return out;
}
Memory floats(const Array& x) {
  Memory out(static_cast<size_t>(x.count()));
  for (int64_t i = 0; i < x.count(); ++i) {
    out.data[static_cast<size_t>(i)] = static_cast<float>(x[i]);
  }
  return out;
}

struct Problem {
  std::vector<int64_t> x;
  int64_t filters;
  kernels::Window window = kSame;
};

void check(const Problem& of, DType dtype) {
  const std::vector<int64_t>& x_dims = of.x;
  const kernels::Window& w2 = of.window;
  const int64_t n = x_dims[0], c = x_dims[1], rows = x_dims[2], columns = x_dims[3],
                filters = of.filters, kernel_rows = w2.kernel[0], kernel_columns = w2.kernel[1];
  const LanesConvolution p{.n = n,
                           .channels = c,
                           .filters = filters,
                           .rows = rows,
                           .columns = columns,
                           .result_rows = window_positions(w2, 0, rows),
                           .result_columns = window_positions(w2, 1, columns),
                           .window = w2,
                           .dtype = dtype};
  // By norm. bf16 rounds results and the values that Winograd's algorithm has transformed.
  const bool wide = dtype == DType::f32;
  const double direct_error = wide ? 1e-6 : 4e-3, winograd_error = wide ? 1.5e-6 : 2.5e-2;
  const std::vector<int64_t> y_dims{n, filters, p.result_rows, p.result_columns},
      w_dims{filters, c, kernel_rows, kernel_columns};
  const Array x = held(random_array(x_dims, 1), dtype), w = held(random_array(w_dims, 2), dtype),
              bias = random_array({filters}, 3), dy = held(random_array(y_dims, 4), dtype);
  const reference::Window window{.stride = {w2.stride[0], w2.stride[1]},
                                 .dilation = {w2.dilation[0], w2.dilation[1]},
                                 .before = {w2.pad_begin[0], w2.pad_begin[1]},
                                 .after = {w2.pad_end[0], w2.pad_end[1]}};
  const bool same = w2.kernel == kSame.kernel && w2.stride == kSame.stride &&
                    w2.dilation == kSame.dilation && w2.pad_begin == kSame.pad_begin &&
                    w2.pad_end == kSame.pad_end;
  const Memory xs = in_lanes(x, dtype), ws = floats(w), bs = floats(bias),
               dys = in_lanes(dy, dtype);
  // Memory behind the scratch memory must stay unchanged.
  constexpr size_t kBehind = 64;
  std::vector<std::pair<size_t, Memory>> scratches;
  const auto scratch = [&](size_t bytes) {
    const size_t count = bytes / sizeof(float);
    return scratches.emplace_back(count, Memory(count + kBehind)).second.data.get();
  };

  const auto packed = [&](bool turned, bool winograd) {
    const TensorSpec spec = lanes_weights_spec({.channels = c,
                                                .filters = filters,
                                                .rows = kernel_rows,
                                                .columns = kernel_columns,
                                                .turned = turned,
                                                .winograd = winograd,
                                                .dtype = dtype});
    Memory out(spec.bytes() / sizeof(float));
    spec.layout->from_row_major(ws.data.get(), out.data.get());
    return out;
  };
  Memory y(static_cast<size_t>(dy.count())), dx(static_cast<size_t>(x.count()));
  Memory dw(static_cast<size_t>(w.count())), db(static_cast<size_t>(filters));
  for (bool winograd : {false, true}) {
    if (winograd && !same) continue;
    SCOPED_TRACE(winograd ? "Winograd's" : "direct");
    const Memory there = packed(false, winograd), back = packed(true, winograd);
    const LanesWinograd forward{n, c, filters, rows, columns, dtype},
        data{n, filters, c, rows, columns, dtype};
    for (const float* b : std::initializer_list<const float*>{bs.data.get(), nullptr}) {
      if (winograd) {
        lanes_winograd(forward, xs.data.get(), there.data.get(), b, y.data.get(),
                       scratch(forward.scratch()));
      } else {
        lanes_convolution(p, xs.data.get(), there.data.get(), b, y.data.get(),
                          scratch(p.scratch(false)));
      }
      EXPECT_LE(relative_error(from_lanes(y, y_dims, dtype),
                               reference::convolution(x, w, b ? bias : Array(), window)),
                winograd ? winograd_error : direct_error);
    }
    if (winograd) {
      lanes_winograd(data, dys.data.get(), back.data.get(), nullptr, dx.data.get(),
                     scratch(data.scratch()));
    } else {
      lanes_convolution_data(p, dys.data.get(), back.data.get(), dx.data.get(),
                             scratch(p.scratch(true)));
    }
    EXPECT_LE(relative_error(from_lanes(dx, x_dims, dtype),
                             reference::convolution_diff_x(x, w, window, dy)),
              winograd ? winograd_error : direct_error);
  }
  const Array expected = reference::convolution_diff_weights(x, w, window, dy);
  lanes_convolution_weights(p, xs.data.get(), dys.data.get(), dw.data.get(),
                            scratch(p.weights_scratch()));
  EXPECT_LE(relative_error(plain(dw, w_dims), expected), 1e-6);
  if (same) {
    const LanesWinograd winograd{n, c, filters, rows, columns, dtype};
    lanes_winograd_weights(winograd, xs.data.get(), dys.data.get(), dw.data.get(),
                           scratch(winograd.weights_scratch()));
    EXPECT_LE(relative_error(plain(dw, w_dims), expected), winograd_error) << "Winograd's";
  }
  lanes_convolution_bias(p, dys.data.get(), db.data.get());
  // Sums that nearly cancel.
  EXPECT_LE(relative_error(plain(db, {filters}), reference::convolution_diff_bias(dy)), 3e-6);
  for (const auto& [count, memory] : scratches) {
    for (size_t i = 0; i < kBehind; ++i) ASSERT_EQ(memory.data[count + i], 1e30f);
  }
}

TEST(LanesConvolution, AgreesWithTheReferenceOnEveryInstructionSet) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const Target only(target);
    for (const Problem& of : std::vector<Problem>{
             {{16, 1, 1, 1}, 1},
             {{16, 3, 2, 3}, 11},
             {{32, 5, 3, 4}, 6},
             {{16, 11, 6, 5}, 22},
             {{16, 17, 5, 8}, 7},
             {{48, 2, 9, 13}, 13},
             {{16, 40, 4, 6}, 3},
             // Several bands of rows and blocks of filters and channels for the weights' gradient.
             {{16, 3, 20, 21}, 5},
             {{32, 18, 33, 9}, 35},
             {{16, 2, 3, 257}, 3},
             // Several parts of vectors of channels, and register tiles of filters for each.
             {{16, 50, 4, 5}, 13},
             {{16, 130, 5, 4}, 9},
             // Rows of less than a vector of pairs, of one and a half, and of more.
             {{16, 3, 6, 1}, 4},
             {{16, 2, 5, 3}, 4},
             {{32, 3, 4, 4}, 5},
             // Other windows: of one element, wide, tall, without padding, with too much padding.
             {{16, 13, 4, 5}, 7, {.kernel = {1, 1}}},
             {{16, 150, 3, 9}, 8, {.kernel = {1, 1}}},
             {{32, 1, 9, 8}, 20, {.kernel = {5, 5}}},
             // Wide tiles of the weights' gradient, for few filters.
             {{16, 1, 9, 12}, 6, {.kernel = {5, 5}, .pad_begin = {2, 2}, .pad_end = {2, 2}}},
             {{16, 2, 9, 12}, 1, {.kernel = {7, 7}, .pad_begin = {3, 3}, .pad_end = {3, 3}}},
             {{32, 1, 8, 14}, 3, {.kernel = {3, 11}, .pad_begin = {1, 5}, .pad_end = {1, 5}}},
             // Tiles that see nothing but zeros through some elements of the window.
             {{16, 3, 5, 17}, 4, {.kernel = {9, 9}, .pad_begin = {8, 8}, .pad_end = {8, 8}}},
             {{16, 9, 6, 7}, 5, {.kernel = {5, 5}, .pad_begin = {2, 2}, .pad_end = {2, 2}}},
             {{16, 3, 9, 12}, 4, {.kernel = {2, 7}, .pad_begin = {0, 3}, .pad_end = {1, 2}}},
             {{16, 3, 12, 4}, 4, {.kernel = {11, 4}, .pad_begin = {9, 1}, .pad_end = {10, 7}}},
             {{16, 2, 3, 3}, 3, {.kernel = {2, 2}, .pad_begin = {4, 3}, .pad_end = {3, 5}}},
             // Strides with which some rows and columns of images are in no window.
             {{16, 5, 8, 8},
              6,
              {.kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {0, 0}}},
             {{32, 18, 9, 11},
              13,
              {.kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
             {{16, 11, 7, 10}, 5, {.kernel = {1, 1}, .stride = {2, 2}}},
             {{16, 4, 11, 14}, 3, {.kernel = {2, 3}, .stride = {3, 4}, .pad_begin = {1, 0}}},
             {{16, 3, 23, 21},
              9,
              {.kernel = {7, 7}, .stride = {2, 2}, .pad_begin = {3, 3}, .pad_end = {3, 3}}},
             {{16, 2, 2, 3}, 3, {.kernel = {2, 3}, .stride = {5, 5}}},
             // Dilation, alone and with strides.
             {{16, 6, 8, 9},
              7,
              {.kernel = {3, 3}, .dilation = {2, 3}, .pad_begin = {2, 3}, .pad_end = {2, 3}}},
             {{16, 3, 12, 13},
              4,
              {.kernel = {3, 2},
              .stride = {2, 3},
              .dilation = {2, 2},
              .pad_begin = {1, 2},
              .pad_end = {3, 0}}},
             {{32, 3, 9, 9},
              5,
              {.kernel = {4, 4},
              .stride = {2, 2},
              .dilation = {2, 1},
              .pad_begin = {3, 1},
              .pad_end = {3, 1}}}}) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        if (dtype == DType::bf16 && !runs_bf16(target)) continue;
        SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + std::string(name_of(dtype)) +
                     ", " + shape_of(Array(of.x)).to_string() + " to " +
                     std::to_string(of.filters) + ", window " + of.window.kernel.to_string());
        check(of, dtype);
        // Half as many images, and half as many more, fill shorter vectors.
        for (const int64_t less : {of.x[0] / 2, of.x[0] * 3 / 2}) {
          if (dtype != DType::f32 || target != HWY_AVX2 || less % 8 != 0) continue;
          Problem shorter = of;
          shorter.x[0] = less;
          check(shorter, dtype);
        }
      }
    }
  }
}

// The memory of Winograd's weight gradients grows with the product of the channels. The rows that
// the direct algorithm copies grow with channels and columns.
TEST(LanesConvolution, TakesBoundedMemory) {
  if (!kernels::cpu::lanes_are_chosen()) GTEST_SKIP() << "images are not taken in lanes here";
  for (const auto& [channels, columns, type] : {std::tuple{64, 8, DType::f32},
                                                {512, 8, DType::f32},
                                                {9, 3000, DType::f32},
                                                {9, 3000, DType::bf16},
                                                {9, 30'000, DType::bf16}}) {
    if (type == DType::bf16 && !kernels::table_for({}).bf16) continue;
    const Shape shape{16, channels, 8, columns};
    const kernels::Kernel kernel = kernels::table_for({}).convolution(
        {.src = {shape, type, nullptr},
         .weights = {channels, channels, 3, 3},
         .dst = shape,
         .window = {.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}},
         .bias = false});
    const bool there = kernels::cpu::in_lanes(kernel.forward.reads[0].spec);
    EXPECT_EQ(there, columns < 30'000);
    if (!there) continue;
    EXPECT_LE(kernel.forward.scratch_bytes, 16u << 20) << channels;
    EXPECT_LE(kernel.backward[0].scratch_bytes, 16u << 20) << channels;
    EXPECT_LE(kernel.backward[1].scratch_bytes, 16u << 20) << channels;
  }
}

// A NaN must not spread, although pairs and whole rows are multiplied at a time.
TEST(LanesConvolution, InBf16WhatIsNotANumberReachesItsWindowsOnly) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (!runs_bf16(target)) continue;
    const Target only(target);
    const int64_t n = 16, rows = 3, columns = 5;
    Array x = random_array({n, 1, rows, columns}, 1), dy = random_array({n, 1, rows, columns}, 2);
    const auto at = [&](int64_t image, int64_t row, int64_t column) {
      return (image * rows + row) * columns + column;
    };
    // In the last column of a row. The first column of the next row follows it in memory.
    x[at(3, 0, columns - 1)] = std::numeric_limits<double>::quiet_NaN();
    // The only position whose window gradient would include it.
    for (int64_t i = 0; i < n; ++i) dy[at(i, 1, 0)] = 1;
    const LanesConvolution p{.n = n,
                             .channels = 1,
                             .filters = 1,
                             .rows = rows,
                             .columns = columns,
                             .result_rows = rows,
                             .result_columns = columns,
                             .window = kSame,
                             .dtype = DType::bf16};
    const Memory xs = in_lanes(x, DType::bf16), dys = in_lanes(dy, DType::bf16);
    Memory dw(9), scratch(p.weights_scratch() / sizeof(float));
    lanes_convolution_weights(p, xs.data.get(), dys.data.get(), dw.data.get(), scratch.data.get());
    // Column `columns` does not exist, so the left and the middle of the window include it, and the
    // right does not.
    for (int64_t i = 0; i < 9; ++i) {
      const bool reached = i / 3 <= 1 && i % 3 >= 1;
      EXPECT_EQ(std::isnan(dw.data[static_cast<size_t>(i)]), reached)
          << hwy::TargetName(target) << ", " << i;
    }
  }
}

TEST(LanesWeights, ComeBackAsTheyWere) {
  for (bool turned : {false, true}) {
    for (bool winograd : {false, true}) {
      for (const auto& [channels, filters] : {std::pair{1, 1}, {7, 13}, {16, 6}, {3, 25}}) {
        const TensorSpec spec = lanes_weights_spec(
            {.channels = channels, .filters = filters, .turned = turned, .winograd = winograd});
        const Tensor w = tensor_of(random_array(spec.shape.dims(), 1));
        const Tensor there = convert(w, spec);
        EXPECT_EQ(there.spec(), spec);
        const Tensor back = convert(there, w.spec());
        EXPECT_LE(relative_error(array_of(back), array_of(w)), winograd ? 5e-7 : 0)
            << spec.to_string();
        // From one layout to another, and as tensors are read.
        const TensorSpec other = lanes_weights_spec(
            {.channels = channels, .filters = filters, .turned = !turned, .winograd = !winograd});
        EXPECT_NE(other, spec);
        EXPECT_LE(relative_error(array_of(convert(there, other)), array_of(w)), 5e-7);
        const TensorSpec narrow = lanes_weights_spec({.channels = channels,
                                                      .filters = filters,
                                                      .turned = turned,
                                                      .winograd = winograd,
                                                      .dtype = DType::bf16});
        EXPECT_NE(narrow, spec);
        const Tensor rounded = convert(convert(there, narrow), w.spec());
        const double error = relative_error(array_of(rounded), array_of(w));
        EXPECT_LE(error, winograd ? 1e-2 : 3e-3) << narrow.to_string();
        EXPECT_GT(error, 1e-4) << narrow.to_string();
      }
    }
  }
}

TEST(Lanes, AreChosenOnAnyProcessorWhereTestsAskForThem) {
  const Shape images{16, 3, 8, 8};
  const bool usual = kernels::cpu::lanes_are_chosen();
  kernels::cpu::choose_lanes_anywhere(true);
  EXPECT_TRUE(kernels::cpu::in_lanes(image_layout({}, images)));
  kernels::cpu::choose_lanes_anywhere(false);
  EXPECT_EQ(kernels::cpu::in_lanes(image_layout({}, images)), usual);
}

}  // namespace
}  // namespace lockstep::optest
