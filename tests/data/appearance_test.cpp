// Changes of colors, blur, erasing, fill values and unequal scales: against formulas of torchvision
// in floating point, and equal in every way of computing them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/data/images/image.h"
#include "tests/data/augmented.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::augmented;
using testing::copy_of;
using testing::MemoryStore;
using testing::message_of;
using testing::patterned;

using Color = std::array<double, 3>;

double clamped(double v) { return std::clamp(v, 0.0, 255.0); }

Color color_at(const Image& image, int64_t pixel) {
  const uint8_t* const p = image.pixels.data() + pixel * 3;
  return {static_cast<double>(p[0]), static_cast<double>(p[1]), static_cast<double>(p[2])};
}

// Rounded as grayscale images are.
double gray_of(const Color& c) {
  return std::floor((19595 * c[0] + 38470 * c[1] + 7471 * c[2] + 32768) / 65536);
}

// torchvision's _rgb2hsv and _hsv2rgb.
Color with_hue(const Color& rgb, double turns) {
  const double r = rgb[0] / 255, g = rgb[1] / 255, b = rgb[2] / 255;
  const double most = std::max({r, g, b}), least = std::min({r, g, b}), cr = most - least;
  const double s = cr / (most == least ? 1 : most), divisor = most == least ? 1 : cr;
  const double rc = (most - r) / divisor, gc = (most - g) / divisor, bc = (most - b) / divisor;
  const double sum = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
  double h = std::fmod(sum / 6 + 1, 1.0);
  h = std::fmod(h + turns + 1, 1.0);
  const double sector = std::floor(h * 6), f = h * 6 - sector;
  const double p = most * (1 - s), q = most * (1 - s * f), t = most * (1 - s * (1 - f));
  const std::array<Color, 6> colors{Color{most, t, p}, Color{q, most, p}, Color{p, most, t},
                                    Color{p, q, most}, Color{t, p, most}, Color{most, p, q}};
  Color result = colors.at(static_cast<size_t>(sector) % 6);
  for (double& v : result) v *= 255;
  return result;
}

constexpr std::array<std::array<int64_t, 2>, 4> kSizes{{{1, 1}, {1, 9}, {7, 5}, {61, 130}}};

TEST(Appearance, ColorsFollowTheFormulasOfTorchvision) {
  for (const auto& [height, width] : kSizes) {
    const Image source = patterned(height, width, 3, 5);
    const int64_t pixels = height * width;
    double mean = 0;
    for (int64_t i = 0; i < pixels; ++i) mean += gray_of(color_at(source, i));
    mean /= static_cast<double>(pixels);
    const auto expect_near = [&](const ColorDraw& draw, auto reference) {
      const Image result = augmented(source, {.color = draw});
      for (int64_t i = 0; i < pixels; ++i) {
        const Color expected = reference(color_at(source, i)), found = color_at(result, i);
        for (size_t c = 0; c < 3; ++c) ASSERT_NEAR(found[c], expected[c], 0.52) << i << " " << c;
      }
    };
    const auto blended = [](const Color& c, const Color& other, double f) {
      Color result;
      for (size_t k = 0; k < 3; ++k) result[k] = clamped(f * c[k] + (1 - f) * other[k]);
      return result;
    };
    for (const double v : {-1.0, -0.4, -0.013, 0.29, 1.0, 9.0}) {
      SCOPED_TRACE(v);
      expect_near({.brightness = v}, [&](const Color& c) { return blended(c, {0, 0, 0}, 1 + v); });
      expect_near({.contrast = v}, [&](const Color& c) {
        return blended(c, {mean, mean, mean}, 1 + v);
      });
      expect_near({.saturation = v}, [&](const Color& c) {
        const double gray = gray_of(c);
        return blended(c, {gray, gray, gray}, 1 + v);
      });
    }
    for (const double turns : {-0.5, -0.31, -0.001, 0.1, 1.0 / 6, 0.37, 0.5}) {
      SCOPED_TRACE(turns);
      expect_near({.hue = turns}, [&](const Color& c) { return with_hue(c, turns); });
    }
  }
}

TEST(Appearance, HuesOfPureColorsGoAroundTheCircle) {
  const Image red{1, 1, 3, {250, 10, 10}};
  const std::vector<uint8_t> green{10, 250, 10}, blue{10, 10, 250}, cyan{10, 250, 250};
  EXPECT_EQ(augmented(red, {.color = {.hue = 1.0 / 3}}).pixels, green);
  EXPECT_EQ(augmented(red, {.color = {.hue = -1.0 / 3}}).pixels, blue);
  EXPECT_EQ(augmented(red, {.color = {.hue = 0.5}}).pixels, cyan);
  EXPECT_EQ(augmented(red, {.color = {.hue = -0.5}}).pixels, cyan);
  for (int v = 0; v < 256; ++v) {
    const auto u = static_cast<uint8_t>(v);
    const Image gray{1, 1, 3, {u, u, u}};
    EXPECT_EQ(augmented(gray, {.color = {.saturation = 3, .hue = 0.2}}), gray);
  }
}

TEST(Appearance, GrayImagesHaveBrightnessAndContrastOnly) {
  const Image source = patterned(9, 4, 1, 3);
  EXPECT_EQ(augmented(source, {.color = {.saturation = 0.5, .hue = 0.3}}), source);
  const Image dark = augmented(source, {.color = {.brightness = -0.5}});
  double mean = 0;
  for (const uint8_t v : source.pixels) mean += v / 36.0;
  const Image flat = augmented(source, {.color = {.contrast = -0.75}});
  for (size_t i = 0; i < 36; ++i) {
    EXPECT_NEAR(dark.pixels[i], source.pixels[i] * 0.5, 0.51);
    EXPECT_NEAR(flat.pixels[i], mean + (source.pixels[i] - mean) * 0.25, 0.52);
  }
}

TEST(Appearance, ChangesOfColorsComeInTheOrderDrawn) {
  const Image source = patterned(12, 7, 3, 8);
  const ColorDraw all{.brightness = 0.4, .contrast = -0.3, .saturation = 0.9, .hue = 0.2};
  std::array<uint8_t, 4> order{0, 1, 2, 3};
  std::map<std::vector<uint8_t>, int> results;
  do {
    Image expected = source;
    for (const uint8_t which : order) {
      ColorDraw one;
      if (which == 0) one.brightness = all.brightness;
      if (which == 1) one.contrast = all.contrast;
      if (which == 2) one.saturation = all.saturation;
      if (which == 3) one.hue = all.hue;
      expected = augmented(expected, {.color = one});
    }
    ColorDraw draw = all;
    draw.order = order;
    EXPECT_EQ(augmented(source, {.color = draw}), expected);
    ++results[expected.pixels];
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_GT(results.size(), 12u);
}

TEST(Appearance, BlurIsCloseToAGaussianFilter) {
  const auto reflected = [](int64_t at, int64_t size) {
    while (size > 1 && (at < 0 || at >= size)) at = at < 0 ? -at : 2 * (size - 1) - at;
    return size == 1 ? 0 : at;
  };
  for (const double deviation : {0.05, 0.6, 1.7, 6.0}) {
    const auto radius = static_cast<int64_t>(std::ceil(3 * deviation));
    std::vector<double> weights;
    double total = 0;
    for (int64_t k = -radius; k <= radius; ++k) {
      const double x = static_cast<double>(k) / deviation;
      weights.push_back(std::exp(-0.5 * x * x));
      total += weights.back();
    }
    for (const auto& [height, width] : {std::array<int64_t, 2>{1, 1}, {2, 9}, {23, 16}}) {
      for (const int64_t channels : {1, 3}) {
        const Image source = patterned(height, width, channels, 2);
        const Image result = augmented(source, {.blur = deviation});
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            for (int64_t c = 0; c < channels; ++c) {
              double sum = 0;
              for (int64_t i = -radius; i <= radius; ++i) {
                for (int64_t j = -radius; j <= radius; ++j) {
                  const int64_t row = reflected(y + i, height), column = reflected(x + j, width);
                  sum += weights[static_cast<size_t>(i + radius)] *
                         weights[static_cast<size_t>(j + radius)] / (total * total) *
                         source.pixels[static_cast<size_t>((row * width + column) * channels + c)];
                }
              }
              // Rounded after each direction.
              ASSERT_NEAR(result.pixels[static_cast<size_t>((y * width + x) * channels + c)], sum,
                          1.05)
                  << deviation << ": " << y << " " << x;
            }
          }
        }
      }
    }
    const Image flat{5, 4, 1, std::vector<uint8_t>(20, 255)};
    EXPECT_EQ(augmented(flat, {.blur = deviation}), flat);
  }
}

TEST(Appearance, ErasedRegionsAreThoseOfTorchvision) {
  const Augmentation options{
      .fill = {1, 2, 3}, .random_erasing = 0.25, .erasing_area = {0.02, 0.33}};
  int erased = 0;
  double log_ratio = 0, share = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const AugmentationDraw draw = draw_augmentation(options, 7, 0, i);
    if (!draw.erases) continue;
    ++erased;
    const auto& first = draw.erasing.tries[0];
    log_ratio += std::log(first.ratio);
    share += first.area;
    EXPECT_GE(first.ratio, 0.3);
    EXPECT_LE(first.ratio, 3.3);
    std::optional<Region> expected;
    constexpr int64_t h = 21, w = 34;
    for (const auto& one : draw.erasing.tries) {
      const auto rows = static_cast<int64_t>(std::lround(std::sqrt(h * w * one.area * one.ratio)));
      const auto columns =
          static_cast<int64_t>(std::lround(std::sqrt(h * w * one.area / one.ratio)));
      if (!(rows < h && columns < w)) continue;
      const auto at = [](uint32_t bits, int64_t n) {
        return static_cast<int64_t>(bits * 0x1p-32 * static_cast<double>(n));
      };
      expected = Region{at(one.row, h - rows + 1), at(one.column, w - columns + 1), rows, columns};
      break;
    }
    EXPECT_EQ(erased_region(draw.erasing, h, w), expected);
    if (i > 200) continue;
    const Image source = patterned(h, w, 3, 4);
    Image wanted = source;
    for (int64_t y = 0; expected && y < expected->height; ++y) {
      for (int64_t x = 0; x < expected->width; ++x) {
        const auto at = static_cast<size_t>(((expected->top + y) * w + expected->left + x) * 3);
        for (size_t c = 0; c < 3; ++c) wanted.pixels[at + c] = static_cast<uint8_t>(c + 1);
      }
    }
    EXPECT_EQ(augmented(source, draw), wanted);
  }
  EXPECT_NEAR(erased, 1000, 6 * std::sqrt(4000 * 0.25 * 0.75));
  EXPECT_NEAR(log_ratio / erased, (std::log(0.3) + std::log(3.3)) / 2, 0.14);
  EXPECT_NEAR(share / erased, 0.175, 0.02);
  // A pixel is not erased: what is smaller than it is empty.
  const auto none = erased_region(draw_augmentation(options, 7, 0, 1).erasing, 1, 1);
  EXPECT_EQ(none.value_or(Region{}).height * none.value_or(Region{}).width, 0);
  EXPECT_EQ(erased_region({}, 8, 8), (Region{0, 0, 0, 0}));
}

// Pixel by pixel in double, as the header describes the moves.
double moved(const Image& source, const AugmentationDraw& d, int64_t y, int64_t x, int64_t c) {
  constexpr double degree = 3.14159265358979323846 / 180;
  const double cx = static_cast<double>(source.width - 1) / 2;
  const double cy = static_cast<double>(source.height - 1) / 2;
  const double px = (static_cast<double>(x - d.shift_x) - cx) / (d.scale * d.scale_x);
  const double py = (static_cast<double>(y - d.shift_y) - cy) / (d.scale * d.scale_y);
  const double s = std::sin(d.rotation * degree), k = std::cos(d.rotation * degree);
  const double fx = (k * px - s * py) * (d.reflect_x ? -1 : 1) + cx, fy = s * px + k * py + cy;
  const double x0 = std::floor(fx), y0 = std::floor(fy), wx = fx - x0, wy = fy - y0;
  const auto pixel = [&](double row, double column) -> double {
    const bool inside = row >= 0 && row < static_cast<double>(source.height) && column >= 0 &&
                        column < static_cast<double>(source.width);
    if (!inside) return d.fill[static_cast<size_t>(c)];
    const int64_t at = static_cast<int64_t>(row) * source.width + static_cast<int64_t>(column);
    return source.pixels[static_cast<size_t>(at * source.channels + c)];
  };
  return (1 - wy) * ((1 - wx) * pixel(y0, x0) + wx * pixel(y0, x0 + 1)) +
         wy * ((1 - wx) * pixel(y0 + 1, x0) + wx * pixel(y0 + 1, x0 + 1));
}

TEST(Appearance, FillAndUnequalScalesAreCloseToTheReference) {
  Augmentation options;
  options.reflect_x = true;
  options.translate_x = {-5, 5};
  options.translate_y = {-3, 3};
  options.fill = {200, 10, 90};
  for (const bool whole : {true, false}) {
    if (!whole) {
      options.rotation = {-180, 180};
      options.scale = {0.7, 1.5};
      options.scale_x = {0.5, 2};
      options.scale_y = {0.4, 1.2};
    }
    for (const auto& [height, width] : {std::array<int64_t, 2>{1, 1}, {1, 9}, {13, 22}}) {
      const Image source = patterned(height, width, 3, 3);
      for (int64_t i = 0; i < 60; ++i) {
        const AugmentationDraw draw = draw_augmentation(options, 5, 0, i);
        ASSERT_EQ(draw.whole_pixels(), whole);
        const Image result = augmented(source, draw);
        for (int64_t k = 0; k < height * width * 3; ++k) {
          const double expected = moved(source, draw, k / 3 / width, k / 3 % width, k % 3);
          ASSERT_NEAR(result.pixels[static_cast<size_t>(k)], expected, whole ? 1e-6 : 1.5) << i;
        }
      }
    }
  }
}

// All changes.
Augmentation everything() {
  Augmentation all;
  all.reflect_x = true;
  all.translate_x = all.translate_y = {-2, 2};
  all.rotation = {-20, 20};
  all.scale_x = {0.8, 1.2};
  all.scale_y = {0.9, 1.1};
  all.fill = {9, 120, 250};
  all.brightness = all.contrast = all.saturation = {-0.4, 0.4};
  all.hue = {-0.1, 0.1};
  all.blur = {0.1, 2};
  all.random_erasing = 0.5;
  return all;
}

TEST(Appearance, PlanesGiveTheSameBytes) {
  for (const auto& [height, width] : kSizes) {
    const Image source = patterned(height, width, 3, 23);
    const std::vector<uint8_t> planes = to_planes(source);
    for (int64_t i = 0; i < 40; ++i) {
      AugmentationDraw draw = draw_augmentation(everything(), 5, 0, i);
      if (i % 3 == 0) draw.rotation = 0, draw.scale_x = draw.scale_y = 1;
      std::vector<uint8_t> result(planes.size(), 77);
      augment_planes_into(planes.data(), height, width, 3, draw, result.data());
      ASSERT_EQ(result, to_planes(augmented(source, draw))) << i;
    }
  }
}

TEST(Appearance, AChangeThatIsOffAffectsNoOther) {
  const Augmentation all = everything();
  for (int64_t i = 0; i < 50; ++i) {
    const AugmentationDraw draw = draw_augmentation(all, 5, 1, i);
    Augmentation fewer = all;
    fewer.brightness = fewer.saturation = {0, 0};
    fewer.blur = {0, 0};
    fewer.scale_x = {1, 1};
    fewer.rotation = {0, 0};
    AugmentationDraw expected = draw;
    expected.color.brightness = expected.color.saturation = expected.blur = expected.rotation = 0;
    expected.scale_x = 1;
    EXPECT_EQ(draw_augmentation(fewer, 5, 1, i), expected);
    fewer = {.random_erasing = 0.5};
    EXPECT_EQ(draw_augmentation(fewer, 5, 1, i).erasing, draw.erasing);
    EXPECT_EQ(draw_augmentation(fewer, 5, 1, i).erases, draw.erases);
    EXPECT_EQ(draw_augmentation({.hue = {-0.1, 0.1}}, 5, 1, i).color.order, draw.color.order);
  }
}

TEST(Appearance, OrdersAndBlursAreDrawnEvenly) {
  std::map<std::array<uint8_t, 4>, int> orders;
  int blurred = 0;
  constexpr int n = 24000;
  for (int i = 0; i < n; ++i) {
    const AugmentationDraw draw = draw_augmentation(everything(), 1, i / 1000, i % 1000);
    ++orders[draw.color.order];
    blurred += draw.blur > 0 ? 1 : 0;
  }
  ASSERT_EQ(orders.size(), 24u);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, n / 24, 190);
  EXPECT_NEAR(blurred, n / 2, 470);
  Augmentation always;
  always.blur = {1, 1};
  for (const auto& [probability, share] : {std::pair{0.0, 0}, {1.0, 1}}) {
    always.blur_probability = probability;
    for (int i = 0; i < 100; ++i) EXPECT_EQ(draw_augmentation(always, 1, 0, i).blur, share);
  }
}

TEST(Appearance, ValuesThatCannotBeAreRefusedByName) {
  const auto refused = [](const Augmentation& options, const std::string& name) {
    const std::string message =
        message_of<InvalidArgument>([&] { draw_augmentation(options, 0, 0, 0); });
    EXPECT_NE(message.find("[augmentation] " + name), std::string::npos) << message;
  };
  refused({.scale_x = {0, 1}}, "scale_x");
  refused({.scale = {0.1, 1}, .scale_y = {0.01, 1}}, "scale and scale_y give factors from 0.001");
  refused({.scale = {1, 50}, .scale_x = {1, 3}}, "scale and scale_x");
  refused({.fill = {}}, "fill");
  refused({.fill = {1, 2}}, "fill");
  refused({.fill = {256}}, "fill");
  refused({.fill = {-1}}, "fill");
  refused({.brightness = {-1.1, 0}}, "brightness");
  refused({.contrast = {0, 10}}, "contrast");
  refused({.saturation = {1, 0}}, "saturation");
  refused({.hue = {0, 0.6}}, "hue");
  refused({.blur = {-1, 0}}, "blur");
  refused({.blur_probability = 1.5}, "blur_probability");
  refused({.random_erasing = -0.1}, "random_erasing");
  refused({.random_erasing = 1, .erasing_area = {0, 1.1}}, "erasing_area");
  refused({.random_erasing = 1, .erasing_ratio = {0, 1}}, "erasing_ratio");
}

TEST(Appearance, MiniBatchesHaveTheSameBytesHoweverTheyAreMade) {
  const auto store = std::make_shared<MemoryStore>(23, 13, 12, 3);
  MiniBatchQueueOptions options = testing::awkward();
  options.augmentation = everything();
  std::vector<MiniBatch> expected;
  for (const size_t budget : {size_t{1} << 20, size_t{0}, size_t{2000}}) {
    for (const int threads : {1, 3}) {
      options.threads = threads;
      MiniBatchQueue queue(testing::cache_of(store, budget), options);
      const std::vector<MiniBatch> all = testing::drain(queue);
      if (expected.empty()) expected = all;
      testing::expect_equal(all, expected);
    }
  }
  // Each row is the image of its key.
  for (const MiniBatch& batch : expected) {
    const std::vector<uint8_t> rows = copy_of<uint8_t>(batch["input"]);
    for (size_t i = 0; i < batch.observations.size(); ++i) {
      const int64_t k = batch.observations[i];
      const std::vector<uint8_t> wanted =
          to_planes(augmented(store->images[static_cast<size_t>(k)],
                              draw_augmentation(everything(), options.seed, batch.epoch, k)));
      const auto row = rows.begin() + static_cast<int64_t>(i * wanted.size());
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), row));
    }
  }
}

TEST(Appearance, TargetsAreMovedOnly) {
  const auto store = std::make_shared<MemoryStore>(6, 9, 8, 3);
  MiniBatchQueueOptions options = testing::awkward();
  options.mini_batch_size = 6;
  options.augmentation = everything();
  options.targets = testing::cache_of(store);
  MiniBatchQueue queue(testing::cache_of(store), options);
  const auto batch = queue.next();
  for (size_t i = 0; i < 6; ++i) {
    const int64_t k = batch->observations[i];
    const AugmentationDraw draw = draw_augmentation(everything(), options.seed, 0, k);
    const std::vector<uint8_t> wanted =
        to_planes(augmented(store->images[static_cast<size_t>(k)], draw.only_moves()));
    for (size_t e = 0; e < wanted.size(); ++e) {
      ASSERT_EQ((*batch)["targets"].values<float>()[i * wanted.size() + e],
                static_cast<float>(wanted[e]) / 255);
    }
  }
}

TEST(Appearance, ThreeFillValuesNeedColors) {
  MiniBatchQueueOptions options = testing::awkward();
  options.augmentation.fill = {1, 2, 3};
  const auto gray = testing::cache_of(std::make_shared<MemoryStore>(6, 9, 8, 1));
  const std::string message = message_of<InvalidArgument>([&] { MiniBatchQueue(gray, options); });
  EXPECT_NE(message.find("fill has three values"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep
