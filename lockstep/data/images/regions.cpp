#include "lockstep/data/images/regions.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/elementwise/double_functions.h"

namespace lockstep {
namespace {

int64_t to_whole(double value) { return static_cast<int64_t>(std::floor(value + 0.5)); }

// The first of `size` positions among `whole`.
int64_t position(uint32_t share, int64_t whole, int64_t size) {
  return static_cast<int64_t>((uint64_t{share} * static_cast<uint64_t>(whole - size + 1)) >> 32);
}

Region centered(int64_t height, int64_t width, int64_t rows, int64_t columns) {
  return {(height - rows) / 2, (width - columns) / 2, rows, columns};
}

}  // namespace

void detail::check_draw_range(const NumberRange& range, const NumberRangeRule& rule,
                              const std::string& name) {
  const double low = range[0], high = range[1];
  if (low <= high && low >= rule.min && high <= rule.max) return;
  throw InvalidArgument(name + " is [" + std::to_string(low) + ", " + std::to_string(high) + "]",
                        "the lower end comes first; both lie within " + std::to_string(rule.min) +
                            " and " + std::to_string(rule.max));
}

RegionDraw detail::draw_region(const RandomStream& stream, uint64_t first_block,
                               const NumberRange& area, const NumberRange& ratio) {
  const double low = kernels::in_double::logarithm(ratio[0]);
  const double high = kernels::in_double::logarithm(ratio[1]);
  RegionDraw draw{.ratio = ratio};
  for (size_t i = 0; i < draw.tries.size(); ++i) {
    const std::array<uint32_t, 4> words = stream.block(first_block + i);
    RegionDraw::Try& one = draw.tries[i];
    one.area = std::min(area[1], std::fma(area[1] - area[0], words[0] * 0x1p-32, area[0]));
    const double exponent = std::fma(high - low, words[1] * 0x1p-32, low);
    one.ratio = std::clamp(kernels::in_double::exponential(exponent), ratio[0], ratio[1]);
    one.row = words[2];
    one.column = words[3];
  }
  return draw;
}

std::optional<Region> erased_region(const RegionDraw& draw, int64_t height, int64_t width) {
  const double pixels = static_cast<double>(height) * static_cast<double>(width);
  for (const RegionDraw::Try& one : draw.tries) {
    const int64_t rows = to_whole(std::sqrt(pixels * one.area * one.ratio));
    const int64_t columns = to_whole(std::sqrt(pixels * one.area / one.ratio));
    if (rows >= height || columns >= width) continue;
    return Region{position(one.row, height, rows), position(one.column, width, columns), rows,
                  columns};
  }
  return std::nullopt;
}

void RandomResizedCrop::check() const {
  detail::check_draw_range(area, detail::area_rule, "[data] crop_area");
  detail::check_draw_range(ratio, detail::ratio_rule, "[data] crop_ratio");
  if (area[1] > 0) return;
  throw InvalidArgument("[data] crop_area is [0, 0]", "it is the share of the image that is kept");
}

RegionDraw draw_resized_crop(const RandomResizedCrop& crop, uint64_t seed, int64_t epoch,
                             int64_t index_in_listing, int64_t repetition) {
  constexpr uint64_t kFirstBlock = 48;
  crop.check();
  const RandomStream stream({.seed = seed,
                             .use = RandomUse::augment,
                             .a = static_cast<uint64_t>(epoch),
                             .b = static_cast<uint64_t>(index_in_listing),
                             .c = static_cast<uint64_t>(repetition)});
  return detail::draw_region(stream, kFirstBlock, crop.area, crop.ratio);
}

Region resized_region(const RegionDraw& draw, int64_t height, int64_t width) {
  const double rows = static_cast<double>(height), columns = static_cast<double>(width);
  for (const RegionDraw::Try& one : draw.tries) {
    const int64_t wide = to_whole(std::sqrt(rows * columns * one.area * one.ratio));
    const int64_t high = to_whole(std::sqrt(rows * columns * one.area / one.ratio));
    if (wide < 1 || high < 1 || wide > width || high > height) continue;
    return {position(one.row, height, high), position(one.column, width, wide), high, wide};
  }
  const auto within = [](double side, int64_t whole) {
    return std::clamp<int64_t>(to_whole(side), 1, whole);
  };
  if (columns < draw.ratio[0] * rows) {
    return centered(height, width, within(columns / draw.ratio[0], height), width);
  }
  if (columns > draw.ratio[1] * rows) {
    return centered(height, width, height, within(rows * draw.ratio[1], width));
  }
  return {0, 0, height, width};
}

Region central_region(const Size2d& whole, int64_t height, int64_t width) {
  const int64_t rows = whole[0], columns = whole[1];
  if (rows * width <= columns * height) {
    return centered(rows, columns, rows, std::max<int64_t>(1, rows * width / height));
  }
  return centered(rows, columns, std::max<int64_t>(1, columns * height / width), columns);
}

}  // namespace lockstep
