// The kernel for images in blocks or lanes, with every instruction set of this processor and both
// block sizes. Other tests run only the variant that convolutions choose.
#include "lockstep/engine/kernels/cpu/normalization/blocked_normalization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/base/numeric/bfloat16.h"
#include "tests/engine/ops/harness.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest {
namespace {

using kernels::cpu::BlockedNormalization;

// Used as a block size: images in lanes.
constexpr int64_t kImagesInLanes = 0;

// Converts n x c x h x w to n x blocks x h x w x block and back, with 0 as padding of the last
// block; or to c x h x w x n.
std::vector<float> blocked(const Array& x, int64_t block) {
  if (block == kImagesInLanes) {
    const int64_t n = x.dim(0), plane = x.count() / n;
    std::vector<float> out(static_cast<size_t>(x.count()));
    for (int64_t i = 0; i < x.count(); ++i) {
      out[static_cast<size_t>(i % plane * n + i / plane)] = static_cast<float>(x[i]);
    }
    return out;
  }
  const int64_t n = x.dim(0), c = x.dim(1), space = x.dim(2) * x.dim(3);
  const int64_t blocks = (c + block - 1) / block;
  std::vector<float> out(static_cast<size_t>(n * blocks * block * space));
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t in = i / space / c, ch = i / space % c, at = i % space;
    out[static_cast<size_t>(((in * blocks + ch / block) * space + at) * block + ch % block)] =
        static_cast<float>(x[i]);
  }
  return out;
}

Array unblocked(const std::vector<float>& from, std::vector<int64_t> dims, int64_t block) {
  Array out(std::move(dims));
  if (block == kImagesInLanes) {
    const int64_t n = out.dim(0), plane = out.count() / n;
    for (int64_t i = 0; i < out.count(); ++i) {
      out[i] = static_cast<double>(from[static_cast<size_t>(i % plane * n + i / plane)]);
    }
    return out;
  }
  const int64_t c = out.dim(1), space = out.dim(2) * out.dim(3);
  const int64_t blocks = (c + block - 1) / block;
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t in = i / space / c, ch = i / space % c, at = i % space;
    out[i] = static_cast<double>(
        from[static_cast<size_t>(((in * blocks + ch / block) * space + at) * block + ch % block)]);
  }
  return out;
}

std::vector<float> floats(const Array& x) { return {x.values.begin(), x.values.end()}; }
Array array(const std::vector<float>& x) {
  Array out({static_cast<int64_t>(x.size())});
  out.values.assign(x.begin(), x.end());
  return out;
}

std::vector<BFloat16> narrow(const std::vector<float>& x) {
  std::vector<BFloat16> out;
  for (float v : x) out.push_back(to_bfloat16(v));
  return out;
}
std::vector<float> wide(const std::vector<BFloat16>& x) {
  std::vector<float> out;
  for (BFloat16 v : x) out.push_back(to_float(v));
  return out;
}
std::vector<float> narrow_or_not(std::vector<float> x, DType dtype) {
  return dtype == DType::bf16 ? wide(narrow(x)) : x;
}

struct Setting {
  std::vector<int64_t> x;
  int64_t rows, columns;
  bool relu = true;
};

void check(const Setting& setting, int64_t block, bool training, DType dtype) {
  const auto held = [&](Array values) {
    for (double& v : values.values) {
      v = static_cast<double>(narrow_or_not({static_cast<float>(v)}, dtype)[0]);
    }
    return values;
  };
  const Array x = held(random_array(setting.x, 3, -2, 3));
  const int64_t c = x.dim(1);
  const Array scale = random_array({c}, 4, 0.5, 1.5), shift = random_array({c}, 5);
  reference::Statistics s = reference::statistics(x);
  if (!training) s = {random_array({c}, 6), random_array({c}, 7, 0.1, 2)};
  const reference::Window window{.stride = {setting.rows, setting.columns}};
  constexpr auto kMax = reference::Pooling::max;
  const Array normalized = reference::batch_normalization(x, scale, shift, s, 1e-5);
  const Array activated = setting.relu ? reference::relu(normalized) : normalized;
  const Array y = reference::pooling(activated, kMax, setting.rows, setting.columns, window);
  const Array dy = held(random_array(y.dims, 8));
  const Array unpooled =
      reference::pooling_diff(activated, kMax, setting.rows, setting.columns, window, dy);
  const auto expected = reference::batch_normalization_diff(
      x, scale, s, 1e-5, training,
      setting.relu ? reference::relu_diff(normalized, unpooled) : unpooled);

  const BlockedNormalization p{.n = x.dim(0),
                               .channels = c,
                               .rows = x.dim(2),
                               .columns = x.dim(3),
                               .block = block == kImagesInLanes ? x.dim(0) : block,
                               .images_in_lanes = block == kImagesInLanes,
                               .window_rows = setting.rows,
                               .window_columns = setting.columns,
                               .dtype = dtype,
                               .relu = setting.relu,
                               .training = training};
  const auto source = blocked(x, block), diff = blocked(dy, block);
  const auto factors = floats(scale), offsets = floats(shift);
  std::vector<float> mean = floats(s.mean), variance = floats(s.variance), rest;
  constexpr float kUnwritten = 1e30f;
  std::vector<float> result(diff.size(), kUnwritten), dx(source.size(), kUnwritten);
  std::vector<float> dscale(static_cast<size_t>(c), kUnwritten), dshift = dscale;
  std::vector<uint8_t> marks(setting.rows * setting.columns == 1 ? 0 : diff.size());
  ASSERT_EQ(p.marks(), static_cast<int64_t>(marks.size()));
  if (training) {
    mean.assign(mean.size(), kUnwritten);
    variance = rest = mean;
  }
  // Elements in both types, one of which the kernel reads.
  auto source16 = narrow(source), diff16 = narrow(diff), result16 = narrow(result),
       dx16 = narrow(dx);
  const auto pick = [&](auto& floats, auto& halves) -> void* {
    return dtype == DType::bf16 ? static_cast<void*>(halves.data()) : floats.data();
  };
  std::vector<float> from = source, back = diff;
  void *const sp = pick(from, source16), *const dp = pick(back, diff16),
              *const rp = pick(result, result16), *const xp = pick(dx, dx16);
  if (training) {
    blocked_normalization(p, sp, factors.data(), offsets.data(), mean.data(), variance.data(),
                          rest.data(), rp, marks.data());
  } else {
    blocked_normalization_with(p, sp, factors.data(), offsets.data(), mean.data(), variance.data(),
                               rp, marks.data());
  }
  blocked_normalization_backward(p, sp, dp, factors.data(), offsets.data(), mean.data(),
                                 variance.data(), training ? rest.data() : nullptr, marks.data(),
                                 xp, dscale.data(), dshift.data());
  const double tolerance = dtype == DType::bf16 ? 1e-2 : 1e-5;
  if (dtype == DType::bf16) {
    result = wide(result16);
    dx = wide(dx16);
  }
  EXPECT_LE(relative_error(array(mean), s.mean), 1e-5);
  EXPECT_LE(relative_error(array(variance), s.variance), 1e-5);
  EXPECT_LE(relative_error(unblocked(result, y.dims, block), y), tolerance);
  EXPECT_LE(relative_error(unblocked(dx, x.dims, block), expected.x), tolerance);
  EXPECT_LE(relative_error(array(dscale), expected.scale), tolerance);
  EXPECT_LE(relative_error(array(dshift), expected.shift), tolerance);
  // The padding of the last block must stay 0, because convolutions rely on it.
  EXPECT_EQ(result, blocked(unblocked(result, y.dims, block), block));
  EXPECT_EQ(dx, blocked(unblocked(dx, x.dims, block), block));
}

TEST(BlockedNormalization, AgreesWithTheReferenceOnEveryInstructionSet) {
  const auto targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (int64_t target : targets) {
    const Target only(target);
    for (int64_t block : {8, 16}) {
      for (bool training : {true, false}) {
        for (const Setting& setting : std::vector<Setting>{{{3, 16, 8, 8}, 2, 2},
                                                           {{2, 11, 7, 5}, 2, 2},
                                                           {{1, 33, 13, 21}, 3, 2},
                                                           {{2, 1, 4, 3}, 1, 1},
                                                           {{3, 18, 5, 7}, 1, 1},
                                                           {{3, 18, 5, 7}, 1, 1, false},
                                                           {{2, 9, 6, 5}, 2, 2, false},
                                                           {{4, 8, 1, 5}, 1, 5}}) {
          SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", blocks of " +
                       std::to_string(block) + (training ? ", training, " : ", inference, ") +
                       shape_of(Array(setting.x)).to_string());
          for (DType dtype : {DType::f32, DType::bf16}) {
            if (dtype == DType::bf16 && !runs_bf16(target)) continue;
            SCOPED_TRACE(lockstep::name_of(dtype));
            check(setting, block, training, dtype);
          }
        }
      }
    }
  }
}

TEST(BlockedNormalization, OfImagesInLanesAgreesWithTheReferenceOnEveryInstructionSet) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const Target only(target);
    for (bool training : {true, false}) {
      for (const Setting& setting : std::vector<Setting>{{{16, 3, 8, 8}, 2, 2},
                                                         {{32, 11, 7, 5}, 2, 2},
                                                         {{16, 2, 13, 21}, 3, 2},
                                                         {{48, 1, 4, 3}, 1, 1},
                                                         {{16, 5, 7, 3}, 1, 1},
                                                         {{32, 5, 7, 3}, 1, 1, false},
                                                         {{16, 4, 6, 5}, 2, 2, false}}) {
        SCOPED_TRACE(std::string(hwy::TargetName(target)) + (training ? ", training, " : ", ") +
                     shape_of(Array(setting.x)).to_string());
        for (DType dtype : {DType::f32, DType::bf16}) {
          if (dtype == DType::bf16 && !runs_bf16(target)) continue;
          SCOPED_TRACE(lockstep::name_of(dtype));
          check(setting, kImagesInLanes, training, dtype);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::optest
