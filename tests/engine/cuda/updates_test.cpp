// Parameter updates and gradient limits on a GPU, run by the emulation: the bits are the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "lockstep/base/digest.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/shapes/copy_chunks.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/parallel/reduce/tree.h"
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

// The additions are those of the fixed tree, for all numbers of leaves, and in place.
TEST(CudaUpdates, SumOfLeaves) {
  for (const size_t count : {1u, 257u, 4099u}) {
    for (int64_t n = 1; n <= (count == 257 ? 70 : 9); ++n) {
      SCOPED_TRACE(std::to_string(count) + " elements of " + std::to_string(n));
      std::vector<std::vector<float>> leaves;
      for (int64_t j = 0; j < n; ++j) leaves.push_back(normal(count, static_cast<uint64_t>(j)));
      const std::function<std::vector<float>(size_t, size_t)> tree = [&](size_t first,
                                                                         size_t size) {
        if (size == 1) return leaves[first];
        const auto left = static_cast<size_t>(tree_split(static_cast<int64_t>(size)));
        std::vector<float> sum = tree(first, left);
        const std::vector<float> right = tree(first + left, size - left);
        for (size_t i = 0; i < count; ++i) sum[i] += right[i];
        return sum;
      };
      const std::vector<float> expected = tree(0, static_cast<size_t>(n));
      std::vector<const float*> addresses;
      for (const auto& leaf : leaves) addresses.push_back(leaf.data());
      std::vector<float> sum(count, kNaN);
      cpu_table().sum_leaves(addresses.data(), n, sum.data(), count, nullptr);
      EXPECT_EQ(sum, expected);
      cuda::sum_leaves(addresses.data(), n, leaves[0].data(), count, nullptr);
      EXPECT_EQ(leaves[0], expected);
    }
  }
  cuda::sum_leaves(nullptr, 0, nullptr, 0, nullptr);
}

// Parameters of all sizes around the limits of XXH3: without blocks, with one and with many (also
// of whole tiles of 64 blocks), with one to three arrays that blocks and numbers of 8 bytes
// straddle.
TEST(CudaUpdates, ParameterDigests) {
  std::vector<std::array<std::vector<float>, 3>> values;
  std::vector<ParameterArrays> arrays;
  std::vector<DigestedParameter> parameters;
  std::vector<UpdateBlock> blocks;
  int64_t bytes = 0;
  for (const size_t count :
       {1u,   2u,   20u,  30u,  59u,   60u,   61u,   85u,   127u,   128u,   129u,   255u,
        256u, 257u, 341u, 511u, 1024u, 1365u, 4097u, 5000u, 16384u, 16385u, 32769u, 40000u}) {
    for (uint64_t kept = 0; kept < 3; ++kept) {
      auto& own = values.emplace_back();
      for (uint64_t k = 0; k <= kept; ++k) own[k] = normal(count, 3 * count + k);
    }
  }
  for (auto& own : values) {
    const auto at = [](std::vector<float>& array) {
      return array.empty() ? nullptr : array.data();
    };
    arrays.push_back(
        {at(own[0]), at(own[1]), at(own[2]), nullptr, static_cast<int64_t>(own[0].size())});
    parameters.push_back({static_cast<int64_t>(blocks.size()), bytes});
    const int64_t all = digested_bytes(arrays.back());
    for (int64_t b = 0; b < digested_blocks(all); ++b) {
      blocks.push_back({static_cast<int64_t>(arrays.size()) - 1, b * xxh3::kBlock});
    }
    bytes += digest_result_bytes(all);
  }
  std::vector<uint64_t> sums(8 * blocks.size());
  std::vector<std::byte> result(static_cast<size_t>(bytes)), expected = result;
  ParameterDigests all{arrays.data(),
                       parameters.data(),
                       static_cast<int64_t>(arrays.size()),
                       blocks.data(),
                       static_cast<int64_t>(blocks.size()),
                       sums.data(),
                       expected.data()};
  cpu_table().parameter_digests(all, nullptr);
  all.results = result.data();
  for (const auto order : {emulation::Order::backwards, emulation::Order::forwards}) {
    emulation::set_order(order);
    std::fill(result.begin(), result.end(), std::byte{0});
    cuda::parameter_digests(all, nullptr);
    EXPECT_TRUE(result == expected);
  }
  // The last parameter by hand.
  Digester digester;
  for (const auto& array : values.back())
    digester.bytes(array.data(), array.size() * sizeof(float));
  const Digest digest = digester.finish();
  EXPECT_EQ(0, std::memcmp(&result[result.size() - 16], &digest.high, 8));
  EXPECT_EQ(0, std::memcmp(&result[result.size() - 8], &digest.low, 8));
  cuda::parameter_digests({}, nullptr);
}

// Chunks of all alignments and lengths; bytes beside them stay.
TEST(CudaUpdates, CopyOfChunks) {
  std::vector<uint8_t> from(70000), result(from.size(), 7), expected = result;
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 37 % 251);
  std::vector<CopyChunk> chunks;
  const auto add = [&](size_t source, size_t to, size_t bytes) {
    chunks.push_back({from.data() + source, result.data() + to, static_cast<int64_t>(bytes)});
    std::memcpy(expected.data() + to, from.data() + source, bytes);
  };
  add(64, 128, static_cast<size_t>(kCopyChunk));
  add(20000, 30000, 1000);
  add(20004, 40000, 4004);
  add(3, 50001, 777);
  add(1, 60001, 0);
  for (const auto order : {emulation::Order::backwards, emulation::Order::forwards}) {
    emulation::set_order(order);
    std::fill(result.begin(), result.end(), uint8_t{7});
    cuda::copy_chunks(chunks.data(), static_cast<int64_t>(chunks.size()), nullptr);
    EXPECT_EQ(result, expected);
  }
  std::fill(result.begin(), result.end(), uint8_t{7});
  cpu_table().copy_chunks(chunks.data(), static_cast<int64_t>(chunks.size()), nullptr);
  EXPECT_EQ(result, expected);
  cuda::copy_chunks(nullptr, 0, nullptr);
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
