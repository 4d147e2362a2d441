// Rotation, scale, shear and reflection in y: exact where the answer is known, close to a slow
// floating-point reference everywhere, and pinned.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "tests/data/augmented.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::augmented;
using testing::message_of;
using testing::patterned;

// The pixel at (y, x), 0 outside.
double at(const Image& image, int64_t y, int64_t x, int64_t c) {
  if (y < 0 || y >= image.height || x < 0 || x >= image.width) return 0;
  return image.pixels[static_cast<size_t>((y * image.width + x) * image.channels + c)];
}

// As the header describes it, step by step, with the C library's functions.
double reference(const Image& source, const AugmentationDraw& d, int64_t y, int64_t x, int64_t c) {
  constexpr double degree = 3.14159265358979323846 / 180;
  const double cx = static_cast<double>(source.width - 1) / 2,
               cy = static_cast<double>(source.height - 1) / 2;
  double px = static_cast<double>(x - d.shift_x) - cx, py = static_cast<double>(y - d.shift_y) - cy;
  px /= d.scale;
  py /= d.scale;
  const double s = std::sin(d.rotation * degree), k = std::cos(d.rotation * degree);
  const double rx = k * px - s * py, ry = s * px + k * py;  // clockwise, back
  const double uy = ry - std::tan(d.shear_y * degree) * rx;
  const double ux = rx - std::tan(d.shear_x * degree) * uy;
  const double fx = (d.reflect_x ? -ux : ux) + cx, fy = (d.reflect_y ? -uy : uy) + cy;
  const double x0 = std::floor(fx), y0 = std::floor(fy), wx = fx - x0, wy = fy - y0;
  const auto ix = static_cast<int64_t>(x0), iy = static_cast<int64_t>(y0);
  return (1 - wy) * ((1 - wx) * at(source, iy, ix, c) + wx * at(source, iy, ix + 1, c)) +
         wy * ((1 - wx) * at(source, iy + 1, ix, c) + wx * at(source, iy + 1, ix + 1, c));
}

// One map describes every change, including shifts and reflections, and gives the bytes that
// copying gives. Images as planes give the same bytes.
TEST(AffineAugmentation, MapsAndPlanesGiveTheSameBytes) {
  Augmentation options;
  options.reflect_x = options.reflect_y = true;
  options.translate_x = options.translate_y = {-9, 9};
  for (const bool whole : {true, false}) {
    if (!whole) {
      options.rotation = {-180, 180};
      options.scale = {0.5, 2};
      options.shear_x = options.shear_y = {-40, 40};
    }
    for (const int64_t channels : {1, 3}) {
      const Image source = patterned(7, 5, channels, 23);
      std::vector<uint8_t> planes, expected_planes(source.pixels.size()), result = planes;
      for (int64_t c = 0; c < channels; ++c) {
        for (size_t i = 0; i < 35; ++i) {
          planes.push_back(
              source.pixels[i * static_cast<size_t>(channels) + static_cast<size_t>(c)]);
        }
      }
      for (int64_t i = 0; i < 200; ++i) {
        SCOPED_TRACE(i);
        const AugmentationDraw draw = draw_augmentation(options, 5, 0, i);
        ASSERT_EQ(draw.whole_pixels(), whole);
        const Image expected = augmented(source, draw);
        for (size_t k = 0; k < source.pixels.size(); ++k) {
          const auto n = static_cast<size_t>(channels);
          expected_planes[k % n * 35 + k / n] = expected.pixels[k];
        }
        result.assign(source.pixels.size(), 77);
        augment_planes_into(planes.data(), 7, 5, channels, draw, result.data());
        ASSERT_EQ(result, expected_planes);
        result.assign(source.pixels.size(), 77);
        kernels::cpu::augment_image(planes.data(), kernels::planar(channels, 7, 5), map_of(draw),
                                    {}, result.data());
        ASSERT_EQ(result, expected_planes);
      }
    }
  }
  EXPECT_EQ(map_of({}), ImageMap{});
}

TEST(AffineAugmentation, IsCloseToTheReference) {
  Augmentation options;
  options.reflect_x = options.reflect_y = true;
  options.translate_x = {-5, 5};
  options.translate_y = {-3, 3};
  options.rotation = {-180, 180};
  options.scale = {0.4, 2.5};
  options.shear_x = {-50, 50};
  options.shear_y = {-50, 50};
  for (const auto& [height, width, channels] :
       {std::array<int64_t, 3>{1, 1, 1}, {1, 9, 3}, {8, 1, 1}, {13, 22, 3}, {16, 16, 1}}) {
    const Image source = patterned(height, width, channels, 3);
    for (int64_t i = 0; i < 60; ++i) {
      const AugmentationDraw draw = draw_augmentation(options, 5, 0, i);
      const Image result = augmented(source, draw);
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          for (int64_t c = 0; c < channels; ++c) {
            // Weights are rounded to 2^-8 in both directions, and the result to whole numbers.
            ASSERT_NEAR(at(result, y, x, c), reference(source, draw, y, x, c), 0.5 + 255.0 / 256)
                << i << ": " << y << ", " << x;
          }
        }
      }
    }
  }
}

TEST(AffineAugmentation, QuarterTurnsOfSquaresMovePixelsExactly) {
  for (const int64_t side : {1, 2, 7, 8}) {
    const Image source = patterned(side, side, 3, 9);
    for (int64_t y = 0; y < side; ++y) {
      for (int64_t x = 0; x < side; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          // Counterclockwise: the right edge moves to the top.
          ASSERT_EQ(at(augmented(source, {.rotation = 90}), y, x, c),
                    at(source, x, side - 1 - y, c));
          ASSERT_EQ(at(augmented(source, {.rotation = -90}), y, x, c),
                    at(source, side - 1 - x, y, c));
        }
      }
    }
    EXPECT_EQ(augmented(source, {.rotation = 180}),
              augmented(source, {.reflect_x = true, .reflect_y = true}));
    EXPECT_EQ(augmented(source, {.rotation = 360}), source);
  }
}

TEST(AffineAugmentation, TheMapWithoutEffectEqualsTheCopy) {
  // A turn of 360 degrees uses the general path, and 0 degrees the exact one.
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{5, 8}, {4, 3}, {1, 1}}) {
    const Image source = patterned(height, width, 3, 1);
    for (const bool rx : {false, true}) {
      for (const bool ry : {false, true}) {
        for (int64_t shift = -9; shift <= 9; shift += 3) {
          AugmentationDraw draw{
              .reflect_x = rx, .shift_x = shift, .shift_y = shift / 3, .reflect_y = ry};
          const Image copied = augmented(source, draw);
          draw.rotation = 360;
          EXPECT_EQ(augmented(source, draw), copied);
        }
      }
    }
  }
}

TEST(AffineAugmentation, ReflectionInYTurnsRowsAround) {
  const Image source = patterned(3, 2, 1, 1);
  const auto& p = source.pixels;
  EXPECT_EQ(augmented(source, {.reflect_y = true}).pixels,
            (std::vector<uint8_t>{p[4], p[5], p[2], p[3], p[0], p[1]}));
  EXPECT_EQ(augmented(source, {.shift_y = 1, .reflect_y = true}).pixels,
            (std::vector<uint8_t>{0, 0, p[4], p[5], p[2], p[3]}));
}

TEST(AffineAugmentation, ScaleAndShearHaveTheirDirections) {
  Image dot{5, 5, 1, std::vector<uint8_t>(25)};
  dot.pixels[3 * 5 + 2] = 200;  // one below the center
  EXPECT_EQ(augmented(dot, {.scale = 2}).pixels[4 * 5 + 2], 200);
  EXPECT_EQ(augmented(dot, {.shear_x = 45}).pixels[3 * 5 + 3], 200);  // to the right
  Image side{5, 5, 1, std::vector<uint8_t>(25)};
  side.pixels[2 * 5 + 3] = 200;  // one to the right of the center
  EXPECT_EQ(augmented(side, {.shear_y = 45}).pixels[3 * 5 + 3], 200);  // down
}

TEST(AffineAugmentation, ExtremesStayInside) {
  const Image source = patterned(33, 47, 1, 2);
  for (const double shear : {-89.0, 89.0}) {
    for (const double scale : {0.01, 100.0}) {
      for (const int64_t shift : {-max_image_side, int64_t{0}, max_image_side}) {
        augmented(source, {.shift_x = shift,
                           .shift_y = -shift,
                           .rotation = 33,
                           .scale = scale,
                           .shear_x = shear,
                           .shear_y = -shear});
      }
    }
  }
}

TEST(AffineAugmentation, TheSameBitsEverywhere) {
  Augmentation options;
  options.reflect_x = options.reflect_y = true;
  options.rotation = {-30, 30};
  options.scale = {0.8, 1.25};
  options.shear_x = options.shear_y = {-10, 10};
  const Image source = patterned(31, 17, 3, 4);
  Digester digester;
  for (int64_t i = 0; i < 50; ++i) {
    const Image result = augmented(source, draw_augmentation(options, 1, 2, i));
    digester.bytes(result.pixels.data(), result.pixels.size());
  }
  EXPECT_EQ(digester.finish().to_string(), "a8ef136ac3ec883cc967384fe6178d15");
}

TEST(AffineAugmentation, DrawsCoverTheirRangesAndLeaveEachOtherAlone) {
  Augmentation options;
  options.rotation = {-10, 30};
  options.scale = {0.5, 2};
  double low = 99, high = -99, sum = 0;
  int reflected = 0;
  constexpr int n = 4000;
  for (int i = 0; i < n; ++i) {
    const AugmentationDraw draw = draw_augmentation(options, 3, 0, i);
    low = std::min(low, draw.rotation);
    high = std::max(high, draw.rotation);
    sum += draw.rotation;
    EXPECT_EQ(draw.shear_x, 0);
    EXPECT_FALSE(draw.reflect_y);
    Augmentation more = options;
    more.reflect_x = more.reflect_y = true;
    more.shear_x = {1, 2};
    more.translate_x = {-3, 3};
    const AugmentationDraw other = draw_augmentation(more, 3, 0, i);
    EXPECT_EQ(other.rotation, draw.rotation);
    EXPECT_EQ(other.scale, draw.scale);
    reflected += other.reflect_y;
  }
  EXPECT_GE(low, -10);
  EXPECT_LT(low, -9.9);
  EXPECT_LE(high, 30);
  EXPECT_GT(high, 29.9);
  EXPECT_NEAR(sum / n, 10, 6 * 40 / std::sqrt(12.0 * n));
  EXPECT_NEAR(reflected, n / 2, 190);
}

TEST(AffineAugmentation, RangesThatCannotBeAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [](const Augmentation& options, const std::string& name) {
    const std::string message =
        message_of<InvalidArgument>([&] { draw_augmentation(options, 0, 0, 0); });
    EXPECT_NE(message.find("[augmentation] " + name), std::string::npos) << message;
  };
  refused({.rotation = {1, 0}}, "rotation");
  refused({.rotation = {0, 361}}, "rotation");
  refused({.rotation = {nan, nan}}, "rotation");
  refused({.scale = {0, 1}}, "scale");
  refused({.scale = {1, 101}}, "scale");
  refused({.shear_x = {0, 90}}, "shear_x");
  refused({.shear_y = {-90, 0}}, "shear_y");
}

TEST(AffineAugmentation, MovesReportsAllChangesOfPosition) {
  EXPECT_FALSE((Augmentation{.reflect_x = true, .reflect_y = true}.moves()));
  EXPECT_TRUE((Augmentation{.reflect_y = true}.any()));
  for (const Augmentation& options :
       {Augmentation{.rotation = {0, 1}}, Augmentation{.scale = {1, 1.5}},
        Augmentation{.shear_x = {0, 1}}, Augmentation{.shear_y = {-1, 0}},
        Augmentation{.translate_x = {0, 1}}}) {
    EXPECT_TRUE(options.any());
    EXPECT_TRUE(options.moves());
  }
}

}  // namespace
}  // namespace lockstep
