// Convolution of images in lanes with every instruction set that this processor has.
#include "lockstep/engine/kernels/cpu/lanes_convolution.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "lockstep/engine/kernels/cpu/lanes_layout.h"
#include "lockstep/engine/kernels/cpu/lanes_weights.h"
#include "lockstep/engine/kernels/cpu/lanes_winograd.h"
#include "lockstep/engine/kernels/table.h"
#include "tests/engine/ops/harness.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest {
namespace {

using kernels::cpu::lanes_weights_spec;
using kernels::cpu::LanesConvolution;
using kernels::cpu::LanesWinograd;

// Aligned as kernels want it.
struct Memory {
  explicit Memory(size_t count)
      : data(static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64)),
             std::free) {
    std::fill_n(data.get(), count, 1e30f);  // nothing may be read before it is written
  }
  std::unique_ptr<float[], void (*)(void*)> data;
};

// n x c x h x w to c x h x w x n and back.
Memory in_lanes(const Array& x) {
  Memory out(static_cast<size_t>(x.count()));
  const int64_t n = x.dim(0), plane = x.count() / n;
  for (int64_t i = 0; i < x.count(); ++i) {
    out.data[static_cast<size_t>(i % plane * n + i / plane)] = static_cast<float>(x[i]);
  }
  return out;
}
Array from_lanes(const Memory& from, std::vector<int64_t> dims) {
  Array out(std::move(dims));
  const int64_t n = out.dim(0), plane = out.count() / n;
  for (int64_t i = 0; i < out.count(); ++i) {
    out[i] = static_cast<double>(from.data[static_cast<size_t>(i % plane * n + i / plane)]);
  }
  return out;
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

void check(const std::vector<int64_t>& x_dims, int64_t filters) {
  const int64_t n = x_dims[0], c = x_dims[1], rows = x_dims[2], columns = x_dims[3];
  const LanesConvolution p{
      .n = n, .channels = c, .filters = filters, .rows = rows, .columns = columns};
  const std::vector<int64_t> y_dims{n, filters, rows, columns}, w_dims{filters, c, 3, 3};
  const Array x = random_array(x_dims, 1), w = random_array(w_dims, 2),
              bias = random_array({filters}, 3), dy = random_array(y_dims, 4);
  const reference::Window window{.before = {1, 1}, .after = {1, 1}};
  const Memory xs = in_lanes(x), ws = floats(w), bs = floats(bias), dys = in_lanes(dy);
  // What lies behind scratch memory must stay.
  constexpr size_t kBehind = 64;
  std::vector<std::pair<size_t, Memory>> scratches;
  const auto scratch = [&](size_t bytes) {
    const size_t count = bytes / sizeof(float);
    return scratches.emplace_back(count, Memory(count + kBehind)).second.data.get();
  };

  const auto packed = [&](bool turned, bool winograd) {
    const TensorSpec spec = lanes_weights_spec({c, filters, turned, winograd});
    Memory out(spec.bytes() / sizeof(float));
    spec.layout->from_row_major(ws.data.get(), out.data.get());
    return out;
  };
  Memory y(static_cast<size_t>(dy.count())), dx(static_cast<size_t>(x.count()));
  Memory dw(static_cast<size_t>(w.count())), db(static_cast<size_t>(filters));
  for (bool winograd : {false, true}) {
    SCOPED_TRACE(winograd ? "Winograd's" : "direct");
    const Memory there = packed(false, winograd), back = packed(true, winograd);
    const LanesWinograd forward{n, c, filters, rows, columns}, data{n, filters, c, rows, columns};
    for (const float* b : std::initializer_list<const float*>{bs.data.get(), nullptr}) {
      if (winograd) {
        lanes_winograd(forward, xs.data.get(), there.data.get(), b, y.data.get(),
                       scratch(forward.scratch()));
      } else {
        lanes_convolution(p, xs.data.get(), there.data.get(), b, y.data.get(),
                          scratch(p.scratch(false)));
      }
      EXPECT_LE(relative_error(from_lanes(y, y_dims),
                               reference::convolution(x, w, b ? bias : Array(), window)),
                winograd ? 1.5e-6 : 1e-6);
    }
    if (winograd) {
      lanes_winograd(data, dys.data.get(), back.data.get(), nullptr, dx.data.get(),
                     scratch(data.scratch()));
    } else {
      lanes_convolution_data(p, dys.data.get(), back.data.get(), dx.data.get(),
                             scratch(p.scratch(true)));
    }
    EXPECT_LE(
        relative_error(from_lanes(dx, x_dims), reference::convolution_diff_x(x, w, window, dy)),
        winograd ? 1.5e-6 : 1e-6);
  }
  const Array expected = reference::convolution_diff_weights(x, w, window, dy);
  lanes_convolution_weights(p, xs.data.get(), dys.data.get(), dw.data.get(),
                            scratch(p.weights_scratch()));
  EXPECT_LE(relative_error(plain(dw, w_dims), expected), 1e-6);
  const LanesWinograd winograd{n, c, filters, rows, columns};
  lanes_winograd_weights(winograd, xs.data.get(), dys.data.get(), dw.data.get(),
                         scratch(winograd.weights_scratch()));
  EXPECT_LE(relative_error(plain(dw, w_dims), expected), 1.5e-6) << "Winograd's";
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
    for (const auto& [x, filters] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{
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
             // Several parts of vectors of channels, and pieces of filters for each.
             {{16, 50, 4, 5}, 13},
             {{16, 130, 5, 4}, 9}}) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + shape_of(Array(x)).to_string() +
                   " to " + std::to_string(filters));
      check(x, filters);
    }
  }
}

// Sums of Winograd's gradients of weights grow with the product of the channels.
TEST(LanesConvolution, TakesBoundedMemory) {
  for (int64_t channels : {64, 512}) {
    const Shape shape{16, channels, 8, 8};
    const kernels::Kernel kernel = kernels::table_for({}).convolution(
        {.src = {shape, DType::f32, nullptr},
         .weights = {channels, channels, 3, 3},
         .dst = shape,
         .window = {.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}},
         .bias = false});
    if (!kernels::cpu::in_lanes(kernel.forward.reads[0].spec)) GTEST_SKIP() << "not in lanes";
    EXPECT_LE(kernel.backward[1].scratch_bytes, 16u << 20) << channels;
  }
}

TEST(LanesWeights, ComeBackAsTheyWere) {
  for (bool turned : {false, true}) {
    for (bool winograd : {false, true}) {
      for (const auto& [channels, filters] : {std::pair{1, 1}, {7, 13}, {16, 6}, {3, 25}}) {
        const TensorSpec spec = lanes_weights_spec({channels, filters, turned, winograd});
        const Tensor w = tensor_of(random_array(spec.shape.dims(), 1));
        const Tensor there = convert(w, spec);
        EXPECT_EQ(there.spec(), spec);
        const Tensor back = convert(there, w.spec());
        EXPECT_LE(relative_error(array_of(back), array_of(w)), winograd ? 5e-7 : 0)
            << spec.to_string();
        // From one to another, and as tensors are read.
        const TensorSpec other = lanes_weights_spec({channels, filters, !turned, !winograd});
        EXPECT_NE(other, spec);
        EXPECT_LE(relative_error(array_of(convert(there, other)), array_of(w)), 5e-7);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::optest
