#include "lockstep/data/images/appearance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/engine/kernels/elementwise/double_functions.h"

namespace lockstep {
namespace {

using kernels::ImageLayout;

// Factors and weights are in units of 2^-16.
constexpr int64_t kUnit = int64_t{1} << 16;

int64_t in_units(double value) {
  return static_cast<int64_t>(std::floor(value * static_cast<double>(kUnit) + 0.5));
}

uint8_t as_pixel(int64_t units) {
  return static_cast<uint8_t>(std::clamp<int64_t>((units + kUnit / 2) >> 16, 0, 255));
}

// The luma of convert_channels(), 0 to 255.
int64_t luma(int64_t red, int64_t green, int64_t blue) {
  return (19595 * red + 38470 * green + 7471 * blue + kUnit / 2) >> 16;
}

// Calls use(first element) for each pixel.
template <class Use>
void for_each_pixel(const ImageLayout& image, Use use) {
  const int64_t pixels = image.height * image.width, step = image.pixel_step;
  for (int64_t i = 0; i < pixels; ++i) use(i * step);
}

template <class Use>
void for_each_element(const ImageLayout& image, Use use) {
  const int64_t channels = image.channels, next = image.channel_step;
  for_each_pixel(image, [&](int64_t at) {
    for (int64_t c = 0; c < channels; ++c) use(at + c * next);
  });
}

// Replaces each byte as the table says.
void replace_all(const ImageLayout& image, const std::array<uint8_t, 256>& table, uint8_t* pixels) {
  for_each_element(image, [&](int64_t at) { pixels[at] = table[pixels[at]]; });
}

void change_brightness(double change, const ImageLayout& image, uint8_t* pixels) {
  const int64_t factor = in_units(1 + change);
  std::array<uint8_t, 256> table;
  for (int64_t v = 0; v < 256; ++v) table[static_cast<size_t>(v)] = as_pixel(factor * v);
  replace_all(image, table, pixels);
}

void change_contrast(double change, const ImageLayout& image, uint8_t* pixels) {
  int64_t sum = 0;
  if (image.channels == 3) {
    const int64_t next = image.channel_step;
    for_each_pixel(image, [&](int64_t at) {
      sum += luma(pixels[at], pixels[at + next], pixels[at + 2 * next]);
    });
  } else {
    for_each_pixel(image, [&](int64_t at) { sum += pixels[at]; });
  }
  const int64_t count = image.height * image.width;
  const int64_t mean = (sum * kUnit + count / 2) / count;
  const int64_t factor = in_units(1 + change);
  std::array<uint8_t, 256> table;
  for (int64_t v = 0; v < 256; ++v) {
    const int64_t units = (factor * v * kUnit + (kUnit - factor) * mean) >> 16;
    table[static_cast<size_t>(v)] = as_pixel(units);
  }
  replace_all(image, table, pixels);
}

void change_saturation(double change, const ImageLayout& image, uint8_t* pixels) {
  if (image.channels != 3) return;
  const int64_t factor = in_units(1 + change), next = image.channel_step;
  for_each_pixel(image, [&](int64_t at) {
    uint8_t* const red = pixels + at;
    const int64_t gray = (kUnit - factor) * luma(red[0], red[next], red[2 * next]);
    for (int64_t c = 0; c < 3; ++c) red[c * next] = as_pixel(factor * red[c * next] + gray);
  });
}

// The hue of a color of chroma k = largest - smallest is a point on a circle of 6 k steps: in each
// of six sectors one channel is the largest, one the smallest, and the third one rises from the
// smallest to the largest or falls back.
void change_hue(double turns, const ImageLayout& image, uint8_t* pixels) {
  if (image.channels != 3) return;
  const int64_t sectors = in_units(6 * turns), next = image.channel_step;
  for_each_pixel(image, [&](int64_t at) {
    uint8_t* const rgb = pixels + at;
    const int64_t r = rgb[0], g = rgb[next], b = rgb[2 * next];
    const int64_t most = std::max({r, g, b}), least = std::min({r, g, b}), chroma = most - least;
    if (chroma == 0) return;
    const int64_t before = r == most   ? g - b + (g < b ? 6 * chroma : 0)
                           : g == most ? b - r + 2 * chroma
                                       : r - g + 4 * chroma;
    const int64_t circle = 6 * chroma * kUnit;
    int64_t hue = before * kUnit + sectors * chroma;
    if (hue < 0) hue += circle;
    if (hue >= circle) hue -= circle;
    const int64_t sector = hue / (chroma * kUnit), within = hue % (chroma * kUnit);
    const auto largest = static_cast<uint8_t>(most), smallest = static_cast<uint8_t>(least);
    const uint8_t rising = as_pixel(least * kUnit + within);
    const uint8_t falling = as_pixel(most * kUnit - within);
    const auto set = [&](uint8_t red, uint8_t green, uint8_t blue) {
      rgb[0] = red;
      rgb[next] = green;
      rgb[2 * next] = blue;
    };
    switch (sector) {
      case 0:
        return set(largest, rising, smallest);
      case 1:
        return set(falling, largest, smallest);
      case 2:
        return set(smallest, largest, rising);
      case 3:
        return set(smallest, falling, largest);
      case 4:
        return set(rising, smallest, largest);
      default:
        return set(largest, smallest, falling);
    }
  });
}

void change_colors(const ColorDraw& color, const ImageLayout& image, uint8_t* pixels) {
  for (const uint8_t which : color.order) {
    switch (which) {
      case 0:
        if (color.brightness != 0) change_brightness(color.brightness, image, pixels);
        break;
      case 1:
        if (color.contrast != 0) change_contrast(color.contrast, image, pixels);
        break;
      case 2:
        if (color.saturation != 0) change_saturation(color.saturation, image, pixels);
        break;
      default:
        if (color.hue != 0) change_hue(color.hue, image, pixels);
    }
  }
}

// The weights of pixels at distances 0 to the radius. The sum over both sides is kUnit.
std::vector<int64_t> gaussian(double deviation) {
  const auto radius = static_cast<int64_t>(std::ceil(3 * deviation));
  std::vector<double> shares;
  double total = 0;
  for (int64_t i = 0; i <= radius; ++i) {
    const double x = static_cast<double>(i) / deviation;
    shares.push_back(kernels::in_double::exponential(-0.5 * x * x));
    total += i == 0 ? shares.back() : 2 * shares.back();
  }
  std::vector<int64_t> weights;
  int64_t sides = 0;
  for (const double share : shares) weights.push_back(in_units(share / total));
  for (size_t i = 1; i < weights.size(); ++i) sides += 2 * weights[i];
  weights[0] = kUnit - sides;
  return weights;
}

// A position outside 0 to size - 1, reflected at the outermost pixels, which are not repeated.
int64_t reflected(int64_t at, int64_t size) {
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1);
  at %= period;
  if (at < 0) at += period;
  return at < size ? at : period - at;
}

// Filters `lines` lines of `count` bytes, which lie `step` apart, within lines `line_step` apart.
void blur_lines(const std::vector<int64_t>& weights, int64_t lines, int64_t line_step,
                int64_t count, int64_t step, uint8_t* pixels) {
  const auto radius = static_cast<int64_t>(weights.size()) - 1;
  std::vector<int32_t> line(static_cast<size_t>(count + 2 * radius));
  std::vector<int64_t> from(line.size());
  for (int64_t i = 0; i < count + 2 * radius; ++i) {
    from[static_cast<size_t>(i)] = reflected(i - radius, count) * step;
  }
  for (int64_t n = 0; n < lines; ++n) {
    uint8_t* const first = pixels + n * line_step;
    for (size_t i = 0; i < line.size(); ++i) line[i] = first[from[i]];
    for (int64_t i = 0; i < count; ++i) {
      const int32_t* const center = line.data() + i + radius;
      int32_t sum = static_cast<int32_t>(kUnit / 2 + weights[0] * center[0]);
      for (int64_t k = 1; k <= radius; ++k) {
        sum += static_cast<int32_t>(weights[static_cast<size_t>(k)]) * (center[-k] + center[k]);
      }
      first[i * step] = static_cast<uint8_t>(sum >> 16);
    }
  }
}

void blur(double deviation, const ImageLayout& image, uint8_t* pixels) {
  const std::vector<int64_t> weights = gaussian(deviation);
  const int64_t row = image.width * image.pixel_step;
  for (int64_t c = 0; c < image.channels; ++c) {
    uint8_t* const plane = pixels + c * image.channel_step;
    blur_lines(weights, image.height, row, image.width, image.pixel_step, plane);
    blur_lines(weights, image.width, image.pixel_step, image.height, row, plane);
  }
}

void erase(const Region& region, const AugmentationDraw& draw, const ImageLayout& image,
           uint8_t* pixels) {
  for (int64_t y = region.top; y < region.top + region.height; ++y) {
    for (int64_t x = region.left; x < region.left + region.width; ++x) {
      uint8_t* const pixel = pixels + (y * image.width + x) * image.pixel_step;
      for (int64_t c = 0; c < image.channels; ++c) {
        pixel[c * image.channel_step] = draw.fill[static_cast<size_t>(std::min<int64_t>(c, 2))];
      }
    }
  }
}

}  // namespace

void detail::change_appearance(const AugmentationDraw& draw, const ImageLayout& image,
                               uint8_t* pixels) {
  if (image.height < 1 || image.width < 1) return;
  change_colors(draw.color, image, pixels);
  if (draw.blur > 0) blur(draw.blur, image, pixels);
  if (!draw.erases) return;
  if (const auto region = erased_region(draw.erasing, image.height, image.width)) {
    erase(*region, draw, image, pixels);
  }
}

}  // namespace lockstep
