// What changes learnables and cuts gradients on a GPU, run through the emulation: the CPU's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "tests/engine/cuda/emulation.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

// One launch over two learnables has the bits of the CPU's updates of each.
TEST(CudaUpdates, Solver) {
  const size_t sizes[] = {1500, 700}, starts[] = {0, 2048}, count = 2748;
  const cuda::BlockFactors a{1, 1}, b{0.1, 0.3};
  const cuda::BlockFactors factors[] = {a, a, b};
  const std::vector<float> w = normal(count, 1), g = normal(count, 2), v = normal(count, 3);
  std::vector<float> s = normal(count, 4);
  for (float& value : s) value = std::abs(value);

  const cuda::FlatSgdmUpdate sgdm{.observations = 96, .momentum = 0.9f, .rate = 0.05, .l2 = 1e-3};
  std::vector<float> w1 = w, v1 = v, w2 = w, v2 = v;
  cuda::solver_flat(w1.data(), v1.data(), g.data(), count, factors, &sgdm, nullptr);
  const cuda::FlatAdamUpdate adam{.observations = 96,
                                  .root_correction = 1.5f,
                                  .epsilon = 1e-8f,
                                  .rate = 0.05,
                                  .l2 = 1e-3,
                                  .first_correction = 0.19,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999};
  std::vector<float> w3 = w, m3 = v, s3 = s, w4 = w, m4 = v, s4 = s;
  cuda::solver_flat(w3.data(), m3.data(), s3.data(), g.data(), count, factors, &adam, nullptr);
  for (int i = 0; i < 2; ++i) {
    const cuda::BlockFactors f = i == 0 ? a : b;
    const size_t at = starts[i], n = sizes[i];
    const SgdmUpdate u{96, static_cast<float>(0.05 * f.rate), 0.9f,
                       static_cast<float>(1e-3 * f.l2)};
    cpu_table().sgdm(&w2[at], &v2[at], &g[at], n, u, nullptr);
    const AdamUpdate t{96,    static_cast<float>(0.05 * f.rate / 0.19), 0.9, 0.999, 1.5f,
                       1e-8f, static_cast<float>(1e-3 * f.l2),          0};
    cpu_table().adam(&w4[at], &m4[at], &s4[at], &g[at], n, t, nullptr);
    const auto same = [&](const std::vector<float>& x, const std::vector<float>& y) {
      return std::equal(x.begin() + static_cast<ptrdiff_t>(at),
                        x.begin() + static_cast<ptrdiff_t>(at + n),
                        y.begin() + static_cast<ptrdiff_t>(at));
    };
    EXPECT_TRUE(same(w1, w2) && same(v1, v2));
    EXPECT_TRUE(same(w3, w4) && same(m3, m4) && same(s3, s4));
    // One learnable by itself.
    std::vector<float> w5 = w, v5 = v, m5 = v, w6 = w, s6 = s;
    cuda::sgdm(&w5[at], &v5[at], &g[at], n, u, nullptr);
    cuda::adam(&w6[at], &m5[at], &s6[at], &g[at], n, t, nullptr);
    EXPECT_TRUE(same(w5, w2) && same(v5, v2));
    EXPECT_TRUE(same(w6, w4) && same(m5, m4) && same(s6, s4));
  }
  std::vector<float> sum(count), expected(count);
  cuda::add(w.data(), g.data(), sum.data(), count, nullptr);
  cpu_table().add(w.data(), g.data(), expected.data(), count, nullptr);
  EXPECT_EQ(sum, expected);
}

// The CPU's bits, for blocks that are whole and not, and more of them than a warp has threads.
TEST(CudaUpdates, GradientThreshold) {
  for (const size_t count : {1u, 1023u, 1024u, 1025u, 40000u}) {
    SCOPED_TRACE(count);
    std::vector<float> x = normal(count, 1);
    if (count > 1024) x[1024] = kNaN;
    // What lies behind the last block stays.
    std::vector<double> sums(norm_blocks(count) + 1, -1), expected = sums;
    cpu_table().block_squares(x.data(), count, expected.data(), nullptr);
    EXPECT_EQ(expected.back(), -1);
    for (const auto order : {emulation::Order::backwards, emulation::Order::forwards}) {
      emulation::set_order(order);
      cuda::block_squares(x.data(), count, sums.data(), nullptr);
      EXPECT_EQ(0, std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(double)));
    }
    std::vector<float> limited = x;
    cpu_table().limit(x.data(), count, 0.5f, nullptr);
    cuda::limit(limited.data(), count, 0.5f, nullptr);
    EXPECT_EQ(0, std::memcmp(limited.data(), x.data(), count * sizeof(float)));
  }
  cuda::block_squares(nullptr, 0, nullptr, nullptr);
  cuda::limit(nullptr, 0, 1, nullptr);
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
