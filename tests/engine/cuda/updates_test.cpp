// Parameter updates and gradient limits on a GPU, run by the emulation: the bits are the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "tests/engine/cuda/emulation.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

// One launch over parameters of several sizes, and one for a single parameter, have the bits of the
// CPU's updates.
template <class Update, class OfAll, class OfOne, class Alone>
void check_solver(std::vector<Update> updates, bool second, OfAll of_all, OfOne of_one,
                  Alone alone) {
  const size_t sizes[] = {1500, 1, 1024, 700};
  struct Arrays {
    std::vector<float> w, first, second, gradient;
    bool operator==(const Arrays&) const = default;
  };
  std::vector<Arrays> all;
  std::vector<ParameterArrays> seen;
  std::vector<UpdateBlock> blocks;
  for (size_t p = 0; p < std::size(sizes); ++p) {
    const size_t n = sizes[p];
    all.push_back(
        {normal(n, 4 * p), normal(n, 4 * p + 1), normal(n, 4 * p + 2), normal(n, 4 * p + 3)});
    // The first array of rmsprop and the second of adam hold squares.
    for (float& x : second ? all[p].second : all[p].first) x = std::abs(x);
  }
  std::vector<Arrays> by_one = all, expected = all;
  for (size_t p = 0; p < all.size(); ++p) {
    Arrays& a = all[p];
    seen.push_back({a.w.data(), a.first.data(), second ? a.second.data() : nullptr,
                    a.gradient.data(), static_cast<int64_t>(a.w.size())});
    for (int64_t i = 0; i < seen[p].count; i += kUpdateBlock) {
      blocks.push_back({static_cast<int64_t>(p), i});
    }
    of_one(expected[p], updates[p]);
    alone(by_one[p], updates[p]);
  }
  of_all(Updates<Update>{seen.data(), updates.data(), blocks.data(),
                         static_cast<int64_t>(blocks.size())},
         nullptr);
  EXPECT_TRUE(all == expected);
  EXPECT_TRUE(by_one == expected);
  of_all(Updates<Update>{}, nullptr);  // nothing to do
}

TEST(CudaUpdates, Solver) {
  const SgdmUpdate sgdm{96, 0.05f, 0.9f, 1e-3f};
  check_solver<SgdmUpdate>(
      {sgdm, sgdm, {96, 0.005f, 0.9f, 0}, sgdm}, false, cuda::sgdm_of_all,
      [](auto& a, const SgdmUpdate& u) {
        cpu_table().sgdm(a.w.data(), a.first.data(), a.gradient.data(), a.w.size(), u, nullptr);
      },
      [](auto& a, const SgdmUpdate& u) {
        cuda::sgdm(a.w.data(), a.first.data(), a.gradient.data(), a.w.size(), u, nullptr);
      });
  const AdamUpdate adam{96, 0.05f, 0.9, 0.999, 1.5f, 1e-8f, 1e-3f, 0};
  check_solver<AdamUpdate>(
      {adam, {96, 0.005f, 0.9, 0.999, 1.5f, 1e-8f, 0, 1e-4f}, adam, adam}, true, cuda::adam_of_all,
      [](auto& a, const AdamUpdate& u) {
        cpu_table().adam(a.w.data(), a.first.data(), a.second.data(), a.gradient.data(), a.w.size(),
                         u, nullptr);
      },
      [](auto& a, const AdamUpdate& u) {
        cuda::adam(a.w.data(), a.first.data(), a.second.data(), a.gradient.data(), a.w.size(), u,
                   nullptr);
      });
  const RmspropUpdate rmsprop{96, 0.05f, 0.9, 1e-8f, 1e-3f};
  check_solver<RmspropUpdate>(
      {rmsprop, rmsprop, rmsprop, {96, 0.5f, 0.9, 1e-8f, 0}}, false, cuda::rmsprop_of_all,
      [](auto& a, const RmspropUpdate& u) {
        cpu_table().rmsprop(a.w.data(), a.first.data(), a.gradient.data(), a.w.size(), u, nullptr);
      },
      [](auto& a, const RmspropUpdate& u) {
        cuda::rmsprop(a.w.data(), a.first.data(), a.gradient.data(), a.w.size(), u, nullptr);
      });
}

TEST(CudaUpdates, Sum) {
  const std::vector<float> a = normal(2748, 1), b = normal(2748, 2);
  std::vector<float> sum(a.size()), expected(a.size());
  cuda::add(a.data(), b.data(), sum.data(), sum.size(), nullptr);
  cpu_table().add(a.data(), b.data(), expected.data(), expected.size(), nullptr);
  EXPECT_EQ(sum, expected);
}

// The bytes are the CPU's: maps of all kinds, odd image sizes, more images than threads of a block.
TEST(CudaUpdates, AugmentImages) {
  for (const auto& [channels, height, width] :
       std::vector<std::array<int64_t, 3>>{{3, 32, 32}, {1, 5, 7}, {4, 1, 1}}) {
    constexpr int64_t images = 300;
    std::vector<uint8_t> source(static_cast<size_t>(images * channels * height * width));
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 89 % 251);
    std::vector<ImageMap> maps;
    for (int64_t i = 0; i < images; ++i) {
      const int64_t one = ImageMap::kOne;
      maps.push_back({i % 2 ? -one : one, 0, 0, i % 3 ? one : -one, i % 5 - 2, i % 7 - 3});
      if (i % 4 == 0) maps.back().xy = one * (i - 150) / 300;
      if (i % 11 == 0) maps.back().yy = one * (i - 150) / 200;
    }
    std::vector<uint8_t> result(source.size(), 77), expected = result;
    AugmentImages all{source.data(), maps.data(), expected.data(), images,
                      planar(channels, height, width)};
    cpu_table().augment_images(all, nullptr);
    all.destination = result.data();
    cuda::augment_images(all, nullptr);
    EXPECT_EQ(result, expected);
    EXPECT_EQ(result == source, false);
  }
  cuda::augment_images({}, nullptr);  // nothing to do
}

// The bits are the CPU's, for full and partial blocks, and more blocks than threads of a warp.
TEST(CudaUpdates, GradientThreshold) {
  for (const size_t count : {1u, 1023u, 1024u, 1025u, 40000u}) {
    SCOPED_TRACE(count);
    std::vector<float> x = normal(count, 1);
    if (count > 1024) x[1024] = kNaN;
    // Memory behind the last block is unchanged.
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
    cpu_table().divide(x.data(), count, 3, nullptr);
    cuda::divide(limited.data(), count, 3, nullptr);
    EXPECT_EQ(0, std::memcmp(limited.data(), x.data(), count * sizeof(float)));
  }
  cuda::block_squares(nullptr, 0, nullptr, nullptr);
  cuda::limit(nullptr, 0, 1, nullptr);
  cuda::divide(nullptr, 0, 1, nullptr);
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
