#include "lockstep/base/numeric/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <set>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Words = std::array<uint32_t, 4>;

// kat_vectors of Random123 1.14, "philox4x32 10".
TEST(Random, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, EveryFieldOfTheKeyCountsAndNoTwoStreamsMeet) {
  std::vector<RandomKey> keys;
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (RandomUse use : {RandomUse::initialize, RandomUse::dropout, RandomUse::user}) {
      keys.push_back({.seed = value, .use = use});
      if (value == 0) continue;
      keys.push_back({.use = use, .a = value});
      keys.push_back({.use = use, .b = value});
      keys.push_back({.use = use, .c = value});
    }
  }
  std::set<Words> blocks;
  for (const RandomKey& key : keys) {
    for (uint64_t i = 0; i < 8; ++i) blocks.insert(RandomStream(key).block(i));
  }
  EXPECT_EQ(blocks.size(), keys.size() * 8);
}

TEST(Random, IsAFunctionOfKeyAndPositionAlone) {
  const RandomKey key{.seed = 42, .use = RandomUse::dropout, .a = 3, .b = 5, .c = 7};
  const RandomStream forward(key), backward(key);
  std::vector<double> first, second(100);
  for (uint64_t i = 0; i < 100; ++i) first.push_back(forward.normal(i));
  for (uint64_t i = 100; i-- > 0;) second[i] = backward.normal(i);
  EXPECT_EQ(first, second);
  EXPECT_EQ(forward.bits(6), forward.block(1)[2]);
}

TEST(Random, ManyBlocksAreThoseThatComeOneByOne) {
  const RandomStream stream({.seed = 7, .a = 1, .b = 2, .c = 3});
  for (const uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 9}) {
    for (const size_t count : {0, 1, 7, 8, 63, 64, 65, 140}) {
      std::vector<uint32_t> words(4 * count + 1, 77);
      stream.blocks(first, count, words.data());
      for (size_t i = 0; i < count; ++i) {
        const auto own = stream.block(first + i);
        EXPECT_TRUE(std::equal(own.begin(), own.end(), words.begin() + 4 * static_cast<long>(i)))
            << first << " + " << i;
      }
      EXPECT_EQ(words.back(), 77u);
    }
  }
}

TEST(Random, TheKindsOfNumbersAtOnePositionShareNoBits) {
  const RandomStream stream({.seed = 1});
  const auto scaled = static_cast<uint64_t>(stream.uniform(0) * 0x1p53);
  EXPECT_NE(scaled >> 21, stream.bits(0));
  EXPECT_NE(scaled >> 21, stream.bits(1));
  EXPECT_NE(scaled, stream.below(0, uint64_t{1} << 53));
}

TEST(Random, UniformNumbersFillTheirInterval) {
  const RandomStream stream({.seed = 7});
  const int n = 200000;
  double sum = 0, squares = 0, lowest = 1, highest = 0, neighbors = 0;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform(static_cast<uint64_t>(i));
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    squares += u * u;
    neighbors += (u - 0.5) * (stream.uniform(static_cast<uint64_t>(i) + 1) - 0.5);
    lowest = std::min(lowest, u);
    highest = std::max(highest, u);
  }
  EXPECT_NEAR(sum / n, 0.5, 0.004);  // six standard errors
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.004);
  EXPECT_NEAR(neighbors / n, 0, 0.0012);
  EXPECT_LT(lowest, 1e-4);
  EXPECT_GT(highest, 1 - 1e-4);
}

// Compares with the same transformation by the mathematics library, on the words that normal()
// uses: those of the blocks from 3 * 2^62 on.
TEST(Random, NormalNumbersAgreeWithTheMathematicsLibrary) {
  double worst = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const RandomStream stream({.seed = seed});
    for (uint64_t i = 0; i < 50000; ++i) {
      const Words w = stream.block((uint64_t{3} << 62) ^ i);
      const uint64_t k1 = ((uint64_t{w[1]} << 32 | w[0]) >> 11) + 1;
      const uint64_t k2 = (uint64_t{w[3]} << 32 | w[2]) >> 11;
      const double radius = std::sqrt(-2 * std::log(static_cast<double>(k1) * 0x1p-53));
      const double angle = 2 * std::numbers::pi * (static_cast<double>(k2) * 0x1p-53);
      worst = std::max(worst, std::abs(stream.normal(2 * i) - radius * std::cos(angle)));
      worst = std::max(worst, std::abs(stream.normal(2 * i + 1) - radius * std::sin(angle)));
    }
  }
  std::printf("worst difference %.2e\n", worst);
  EXPECT_LT(worst, 1e-12);
}

TEST(Random, NormalNumbersHaveTheMomentsAndTailsOfTheNormalDistribution) {
  const RandomStream stream({.seed = 11});
  const int n = 400000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal(static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    m1 += x;
    m2 += x * x;
    m3 += x * x * x;
    m4 += x * x * x * x;
    if (std::abs(x) > 2) ++beyond_two;
  }
  EXPECT_NEAR(m1 / n, 0, 0.01);
  EXPECT_NEAR(m2 / n, 1, 0.014);
  EXPECT_NEAR(m3 / n, 0, 0.04);
  EXPECT_NEAR(m4 / n, 3, 0.1);
  EXPECT_NEAR(beyond_two / static_cast<double>(n), 0.0455, 0.002);
}

// These bits belong to the meaning of a seed. A change would change every trained network.
TEST(Random, TheBitsOfASeedStayWhatTheyAre) {
  const RandomStream stream({.seed = 1, .use = RandomUse::initialize, .a = 2, .b = 3, .c = 4});
  Digester digester;
  for (uint64_t i = 0; i < 1000; ++i) {
    const double numbers[] = {stream.normal(i), stream.uniform(i)};
    digester.bytes(numbers, sizeof numbers);
    digester.add(stream.below(i, 1000));
    digester.add(stream.bits(i));
  }
  EXPECT_EQ(digester.finish().to_string(), "dcabed65f374a0df4aa502a10c57d330");
}

TEST(Random, BelowReachesEveryNumberEquallyOften) {
  const RandomStream stream({.seed = 3});
  const uint64_t n = 7;
  std::array<int, 7> counts{};
  for (uint64_t i = 0; i < 70000; ++i) {
    const uint64_t r = stream.below(i, n);
    ASSERT_LT(r, n);
    ++counts[r];
  }
  for (int count : counts) EXPECT_NEAR(count, 10000, 560);  // six standard deviations
  EXPECT_EQ(stream.below(5, 1), 0u);
  EXPECT_THROW(stream.below(0, 0), InvalidArgument);
}

TEST(Random, BetweenIncludesBothEnds) {
  const RandomStream stream({.seed = 4});
  std::set<int64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) seen.insert(stream.between(i, -4, 4));
  EXPECT_EQ(seen, (std::set<int64_t>{-4, -3, -2, -1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(stream.between(0, 9, 9), 9);
  EXPECT_THROW(stream.between(0, 1, 0), InvalidArgument);
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const int64_t highest = std::numeric_limits<int64_t>::max();
  bool negative = false, positive = false;
  for (uint64_t i = 0; i < 64; ++i) {
    (stream.between(i, lowest, highest) < 0 ? negative : positive) = true;
  }
  EXPECT_TRUE(negative && positive);
}

TEST(Random, PermutationsHoldEveryIndexOnceAndReachEveryOrder) {
  for (int64_t n : {0, 1, 2, 1000}) {
    std::vector<int64_t> order = random_permutation({.seed = 5, .use = RandomUse::shuffle}, n);
    std::sort(order.begin(), order.end());
    ASSERT_EQ(static_cast<int64_t>(order.size()), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
  }
  std::set<std::vector<int64_t>> orders;
  for (uint64_t epoch = 0; epoch < 400; ++epoch) {
    orders.insert(random_permutation({.seed = 5, .use = RandomUse::shuffle, .a = epoch}, 4));
  }
  EXPECT_EQ(orders.size(), 24u);
  EXPECT_THROW(random_permutation({}, -1), InvalidArgument);
}

TEST(Random, TextsGiveDifferentKeys) {
  EXPECT_EQ(key_from_text("conv_1"), key_from_text("conv_1"));
  EXPECT_NE(key_from_text("conv_1"), key_from_text("conv_2"));
  EXPECT_NE(key_from_text(""), 0u);
}

}  // namespace
}  // namespace lockstep
