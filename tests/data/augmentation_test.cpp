// Augmentation: every draw against a slow reference. Draws depend only on their key.
#include "lockstep/data/images/augmentation.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::patterned;

// Pixel by pixel, as documented.
Image reference(const Image& source, const AugmentationDraw& draw) {
  Image reflected = source, result = source;
  const auto at = [&](int64_t y, int64_t x, int64_t c) {
    return static_cast<size_t>((y * source.width + x) * source.channels + c);
  };
  for (int64_t y = 0; y < source.height; ++y) {
    for (int64_t x = 0; x < source.width; ++x) {
      for (int64_t c = 0; c < source.channels; ++c) {
        if (draw.reflect_x) {
          reflected.pixels[at(y, x, c)] = source.pixels[at(y, source.width - 1 - x, c)];
        }
      }
    }
  }
  for (int64_t y = 0; y < source.height; ++y) {
    for (int64_t x = 0; x < source.width; ++x) {
      const int64_t fy = y - draw.shift_y, fx = x - draw.shift_x;
      const bool inside = fy >= 0 && fy < source.height && fx >= 0 && fx < source.width;
      for (int64_t c = 0; c < source.channels; ++c) {
        result.pixels[at(y, x, c)] = inside ? reflected.pixels[at(fy, fx, c)] : 0;
      }
    }
  }
  return result;
}

TEST(Augmentation, EveryReflectionAndShiftMatchesTheReferenceAlsoBeyondTheImage) {
  for (const int64_t channels : {1, 3, 2}) {
    const Image source = patterned(5, 7, channels, 11);
    for (const bool reflect : {false, true}) {
      for (int64_t dx = -9; dx <= 9; ++dx) {
        for (int64_t dy = -7; dy <= 7; ++dy) {
          const AugmentationDraw draw{reflect, dx, dy};
          Image result = source;
          // Guards on both sides show writes outside.
          std::vector<uint8_t> buffer(source.pixels.size() + 64, 77);
          augment_into(source, draw, buffer.data() + 32);
          result.pixels.assign(buffer.begin() + 32, buffer.end() - 32);
          ASSERT_EQ(result, reference(source, draw)) << reflect << " " << dx << " " << dy;
          for (size_t i = 0; i < 32; ++i) {
            ASSERT_EQ(buffer[i], 77);
            ASSERT_EQ(buffer[buffer.size() - 1 - i], 77);
          }
        }
      }
    }
  }
}

TEST(Augmentation, DrawsCoverTheirRangesEvenly) {
  Augmentation augmentation;
  augmentation.reflect_x = true;
  augmentation.translate_x = {-4, 4};
  augmentation.translate_y = {-1, 2};
  std::map<int64_t, int> xs, ys;
  int reflected = 0;
  constexpr int n = 36000;
  for (int i = 0; i < n; ++i) {
    const AugmentationDraw draw = draw_augmentation(augmentation, 3, i / 6000, i % 6000, 0);
    ++xs[draw.shift_x];
    ++ys[draw.shift_y];
    reflected += draw.reflect_x;
  }
  ASSERT_EQ(xs.size(), 9u);
  ASSERT_EQ(ys.size(), 4u);
  EXPECT_EQ(xs.begin()->first, -4);
  EXPECT_EQ(ys.begin()->first, -1);
  // Six standard deviations of the binomial.
  for (const auto& [shift, count] : xs) EXPECT_NEAR(count, n / 9, 360) << shift;
  for (const auto& [shift, count] : ys) EXPECT_NEAR(count, n / 4, 500) << shift;
  EXPECT_NEAR(reflected, n / 2, 570);
}

TEST(Augmentation, ADrawDependsOnSeedEpochIndexAndRepetitionEach) {
  Augmentation augmentation;
  augmentation.translate_x = {-1000, 1000};
  augmentation.translate_y = {-1000, 1000};
  const AugmentationDraw draw = draw_augmentation(augmentation, 1, 2, 3, 4);
  EXPECT_EQ(draw_augmentation(augmentation, 1, 2, 3, 4), draw);
  EXPECT_NE(draw_augmentation(augmentation, 9, 2, 3, 4), draw);
  EXPECT_NE(draw_augmentation(augmentation, 1, 9, 3, 4), draw);
  EXPECT_NE(draw_augmentation(augmentation, 1, 2, 9, 4), draw);
  EXPECT_NE(draw_augmentation(augmentation, 1, 2, 3, 9), draw);
  // One option does not change the draws of the others.
  Augmentation also = augmentation;
  also.reflect_x = true;
  EXPECT_EQ(draw_augmentation(also, 1, 2, 3, 4).shift_x, draw.shift_x);
}

TEST(Augmentation, NothingIsDrawnWhereNothingIsAsked) {
  const Augmentation none;
  EXPECT_FALSE(none.any());
  EXPECT_TRUE(Augmentation{.reflect_x = true}.any());
  EXPECT_TRUE((Augmentation{.translate_y = {0, 1}}.any()));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(draw_augmentation(none, 1, 0, i, 0), AugmentationDraw{});
  }
}

TEST(Augmentation, ReversedRangesAreRefused) {
  Augmentation augmentation;
  augmentation.translate_x = {4, -4};
  EXPECT_THROW(draw_augmentation(augmentation, 1, 0, 0, 0), InvalidArgument);
}

TEST(Augmentation, IsReadFromJson) {
  const auto json =
      nlohmann::json::parse(R"({"reflect_x": true, "translate_x": 4, "translate_y": [-1, 2]})");
  Augmentation augmentation;
  FieldReader reader(json, "augmentation");
  augmentation.visit(reader);
  reader.finish();
  Augmentation expected;
  expected.reflect_x = true;
  expected.translate_x = {-4, 4};
  expected.translate_y = {-1, 2};
  EXPECT_EQ(augmentation, expected);
}

}  // namespace
}  // namespace lockstep
