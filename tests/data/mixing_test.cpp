// Images of a mini-batch that are mixed: what is drawn, and what the queue makes of it.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::drain;
using testing::expect_equal;
using testing::MemoryStore;
using testing::message_of;
using testing::small_cache;

Augmentation mixing(double mixup, double cutmix) {
  Augmentation augmentation;
  augmentation.mixup = mixup;
  augmentation.cutmix = cutmix;
  return augmentation;
}

// The symmetric Beta distribution has the mean 1/2 and the variance 1 / (4 (2 alpha + 1)); its
// kurtosis without 3 is -6 / (3 + 2 alpha).
TEST(Mixing, SharesHaveTheBetaDistribution) {
  for (const double alpha : {0.01, 0.2, 1.0, 5.0, 100.0}) {
    for (const bool cuts : {false, true}) {
      constexpr int kDraws = 40'000;
      double mean = 0, square = 0, fourth = 0;
      for (int i = 0; i < kDraws; ++i) {
        const MixDraw draw =
            draw_mix(cuts ? mixing(0, alpha) : mixing(alpha, 0), 7, i / 1000, i % 1000);
        ASSERT_EQ(draw.cuts, cuts);
        ASSERT_GE(draw.share, 0);
        ASSERT_LE(draw.share, 1);
        const double d = draw.share - 0.5;
        mean += d / kDraws;
        square += d * d / kDraws;
        fourth += d * d * d * d / kDraws;
      }
      const double variance = 0.25 / (2 * alpha + 1);
      EXPECT_NEAR(mean, 0, 4 * std::sqrt(variance / kDraws)) << alpha;
      EXPECT_NEAR(square / variance, 1, 0.03) << alpha;
      EXPECT_NEAR(fourth / (square * square), 3 - 6 / (3 + 2 * alpha), 0.1) << alpha;
    }
  }
}

TEST(Mixing, BothAreTakenEquallyOftenAndDependOnTheirKey) {
  int cuts = 0;
  for (int i = 0; i < 4000; ++i) cuts += draw_mix(mixing(1, 1), 7, 0, i).cuts ? 1 : 0;
  EXPECT_NEAR(cuts, 2000, 130);
  const MixDraw one = draw_mix(mixing(0.2, 0), 1, 2, 3);
  EXPECT_EQ(one, draw_mix(mixing(0.2, 0), 1, 2, 3));
  EXPECT_NE(one, draw_mix(mixing(0.2, 0), 9, 2, 3));
  EXPECT_NE(one, draw_mix(mixing(0.2, 0), 1, 9, 3));
  EXPECT_NE(one, draw_mix(mixing(0.2, 0), 1, 2, 9));
  EXPECT_EQ(draw_mix({}, 1, 2, 3), MixDraw());
}

// The formula of torchvision.transforms.v2.CutMix.
TEST(Mixing, WhatIsCutIsThatOfTorchvision) {
  for (int i = 0; i < 200; ++i) {
    const MixDraw draw = draw_mix(mixing(0, 1), 3, 0, i);
    for (const auto& [height, width] : {std::pair{32, 32}, {7, 50}, {1, 1}, {224, 160}}) {
      const int r_x = static_cast<int>(draw.column * 0x1p-32 * width);
      const int r_y = static_cast<int>(draw.row * 0x1p-32 * height);
      const double r = 0.5 * std::sqrt(1.0 - draw.share);
      const int half_w = static_cast<int>(r * width), half_h = static_cast<int>(r * height);
      const int x1 = std::max(r_x - half_w, 0), y1 = std::max(r_y - half_h, 0);
      const int x2 = std::min(r_x + half_w, width), y2 = std::min(r_y + half_h, height);
      EXPECT_EQ(draw.region(height, width), (Region{y1, x1, y2 - y1, x2 - x1}));
      EXPECT_DOUBLE_EQ(draw.own_share(height, width),
                       1.0 - static_cast<double>((x2 - x1) * (y2 - y1)) / (width * height));
    }
  }
}

TEST(Mixing, SumsAreRoundedToTheNearestByte) {
  const MixDraw draw{.share = 0.7001953125};  // a multiple of 2^-10
  std::vector<uint8_t> own, other;
  for (int i = 0; i < 256; ++i) {
    own.push_back(static_cast<uint8_t>(i));
    other.push_back(static_cast<uint8_t>(i * 37));
  }
  const std::vector<uint8_t> before = own;
  mix_into(draw, other.data(), 16, 16, 1, own.data());
  for (size_t i = 0; i < 256; ++i) {
    const double exact = draw.share * before[i] + (1 - draw.share) * other[i];
    EXPECT_EQ(own[i], std::floor(exact + 0.5)) << i;
  }
  std::vector<uint8_t> none = before;
  mix_into({.share = 1}, other.data(), 16, 16, 1, none.data());
  EXPECT_EQ(none, before);
  mix_into({.share = 0}, other.data(), 16, 16, 1, none.data());
  EXPECT_EQ(none, other);
}

std::vector<MiniBatch> batches(const MiniBatchQueueOptions& options, size_t bytes = 1 << 20) {
  MiniBatchQueue queue(small_cache(23, bytes), options);
  return drain(queue);
}

TEST(Mixing, EachRowIsMixedWithTheOneBefore) {
  MiniBatchQueueOptions options = testing::awkward();
  const std::vector<MiniBatch> plain = batches(options);
  for (const auto& [mixup, cutmix] : {std::pair{0.8, 0.0}, {0.0, 1.0}, {0.4, 0.7}}) {
    options.augmentation.mixup = mixup;
    options.augmentation.cutmix = cutmix;
    const std::vector<MiniBatch> mixed = batches(options);
    ASSERT_EQ(mixed.size(), plain.size());
    for (size_t b = 0; b < mixed.size(); ++b) {
      const MiniBatch& before = plain[b];
      const auto n = static_cast<size_t>(before.size());
      const MixDraw draw = draw_mix(options.augmentation, options.seed, before.epoch, before.index);
      const size_t bytes = before.arrays[0].row_bytes();
      const std::span<const uint8_t> from = before.arrays[0].values<uint8_t>();
      std::vector<uint8_t> expected(from.begin(), from.end());
      std::vector<int32_t> others;
      for (size_t i = 0; i < n; ++i) {
        const size_t other = i == 0 ? n - 1 : i - 1;
        mix_into(draw, from.data() + other * bytes, 5, 4, 3, expected.data() + i * bytes);
        others.push_back(before.labels()[other]);
      }
      EXPECT_EQ(testing::copy_of<uint8_t>(mixed[b].arrays[0]), expected);
      EXPECT_EQ(testing::copy_of<int32_t>(mixed[b]["labels"]),
                testing::copy_of<int32_t>(before["labels"]));
      EXPECT_EQ(testing::copy_of<int32_t>(mixed[b]["other_labels"]), others);
      const auto share = static_cast<float>(draw.own_share(5, 4));
      EXPECT_EQ(testing::copy_of<float>(mixed[b]["label_shares"]), std::vector<float>(n, share));
    }
  }
}

TEST(Mixing, ThreadsMemoryAndWantedRowsDoNotMatter) {
  MiniBatchQueueOptions options = testing::awkward();
  options.augmentation.mixup = 0.5;
  options.augmentation.cutmix = 0.5;
  const std::vector<MiniBatch> one = batches(options);
  for (const int threads : {2, 5}) {
    options.threads = threads;
    expect_equal(batches(options), one);
    expect_equal(batches(options, 0), one);
  }
  // Members of a group make only their rows.
  const std::vector<std::vector<IndexRange>> parts{{{0, 1}}, {{1, 2}}, {{0, 1}, {2, 1}},
                                                   {{0, 3}}, {},       {{2, 1}}};
  for (const std::vector<IndexRange>& part : parts) {
    options.rows = [&](int64_t, int64_t, int64_t) { return part; };
    const std::vector<MiniBatch> some = batches(options, 0);
    ASSERT_EQ(some.size(), one.size());
    for (size_t b = 0; b < one.size(); ++b) {
      EXPECT_EQ(some[b]["other_labels"], one[b]["other_labels"]);
      EXPECT_EQ(some[b]["label_shares"], one[b]["label_shares"]);
      for (const IndexRange& range : part) {
        const auto expected = one[b].arrays[0].bytes_of(range.first, range.count);
        const auto found = some[b].arrays[0].bytes_of(range.first, range.count);
        EXPECT_TRUE(std::ranges::equal(found, expected)) << b;
      }
    }
  }
}

TEST(Mixing, WhatCannotBeMixedIsRefused) {
  for (const auto& [mixup, cutmix] : {std::pair{-0.1, 0.0}, {0.0, 101.0}, {NAN, 0.0}}) {
    EXPECT_THROW(mixing(mixup, cutmix).check(), InvalidArgument);
  }
  MiniBatchQueueOptions options = testing::awkward();
  options.augmentation.cutmix = 1;
  options.augment_inputs = false;
  EXPECT_NE(message_of<InvalidArgument>([&] { batches(options); }).find("mixup and cutmix"),
            std::string::npos);
  options.augment_inputs = true;
  options.targets = small_cache();
  EXPECT_NE(message_of<InvalidArgument>([&] {
              batches(options);
            }).find("for examples of one image and a class label"),
            std::string::npos);
  EXPECT_EQ(mixing(1, 0).image_change(), "mixup");
  EXPECT_EQ(mixing(0, 1).image_change(), "cutmix");
  EXPECT_FALSE(mixing(0, 1).only_maps());
}

}  // namespace
}  // namespace lockstep
