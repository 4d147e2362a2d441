// Images that are mixed with each other: mixup and cutmix.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/kernels/elementwise/double_functions.h"

namespace lockstep {
namespace {

using kernels::in_double::exponential;
using kernels::in_double::logarithm;

constexpr int32_t kShareUnit = 1 << 16;

void check_beta(double value, const char* name) {
  if (value >= 0 && value <= 100) return;
  throw InvalidArgument("[augmentation] " + std::string(name) + " is " + std::to_string(value) +
                        ", but must be between 0 and 100");
}

// The logarithm of a number with the gamma distribution of parameter `alpha` (Marsaglia and Tsang
// 2000): drawn for alpha + 1, and multiplied by U^(1 / alpha).
double log_gamma_draw(double alpha, const RandomStream& normals, const RandomStream& uniforms) {
  const double d = alpha + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  constexpr uint64_t kMost = 1000;  // each try succeeds with a probability above 0.9
  const double boost = logarithm(1 - uniforms.uniform(0)) / alpha;
  for (uint64_t i = 1; i < kMost; ++i) {
    const double x = normals.normal(i), root = std::fma(c, x, 1);
    if (root <= 0) continue;
    const double v = root * root * root, log_v = logarithm(v);
    const double bound = std::fma(d, 1 - v + log_v, 0.5 * x * x);
    if (logarithm(1 - uniforms.uniform(i)) < bound) return logarithm(d) + log_v + boost;
  }
  return logarithm(d) + boost;
}

// The first pixel and the one after the last of `half` ones to each side of a center.
std::pair<int64_t, int64_t> part_around(uint32_t center, double half, int64_t size) {
  const auto at = static_cast<int64_t>((uint64_t{center} * static_cast<uint64_t>(size)) >> 32);
  const auto reach = static_cast<int64_t>(half * static_cast<double>(size));
  return {std::max<int64_t>(at - reach, 0), std::min(at + reach, size)};
}

}  // namespace

Region MixDraw::region(int64_t height, int64_t width) const {
  if (!cuts) return {};
  const double half = 0.5 * std::sqrt(1 - share);
  const auto [top, bottom] = part_around(row, half, height);
  const auto [left, right] = part_around(column, half, width);
  return {top, left, bottom - top, right - left};
}

double MixDraw::own_share(int64_t height, int64_t width) const {
  if (!cuts) return share;
  const Region cut = region(height, width);
  return 1 - static_cast<double>(cut.height * cut.width) / static_cast<double>(height * width);
}

MixDraw draw_mix(const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t number) {
  check_beta(augmentation.mixup, "mixup");
  check_beta(augmentation.cutmix, "cutmix");
  if (!augmentation.mixes()) return {};
  const auto stream = [&](uint64_t part) {
    return RandomStream({.seed = seed,
                         .use = RandomUse::augment,
                         .a = static_cast<uint64_t>(epoch),
                         .b = static_cast<uint64_t>(number),
                         .c = (uint64_t{1} << 62) + part});
  };
  const std::array<uint32_t, 4> words = stream(0).block(0);
  const bool both = augmentation.mixup > 0 && augmentation.cutmix > 0;
  MixDraw draw{.cuts = both ? (words[0] >> 31) != 0 : augmentation.cutmix > 0,
               .row = words[1],
               .column = words[2]};
  const double alpha = draw.cuts ? augmentation.cutmix : augmentation.mixup;
  constexpr double kFar = 700;
  const double own = log_gamma_draw(alpha, stream(1), stream(2));
  const double other = log_gamma_draw(alpha, stream(3), stream(4));
  draw.share = 1 / (1 + exponential(std::clamp(other - own, -kFar, kFar)));
  if (!draw.cuts) draw.share = std::floor(draw.share * kShareUnit + 0.5) / kShareUnit;
  return draw;
}

void mix_into(const MixDraw& draw, const uint8_t* other, int64_t height, int64_t width,
              int64_t channels, uint8_t* pixels) {
  if (!draw.cuts) {
    const auto own = static_cast<int32_t>(draw.share * kShareUnit), rest = kShareUnit - own;
    for (int64_t i = 0; i < channels * height * width; ++i) {
      pixels[i] = static_cast<uint8_t>((own * pixels[i] + rest * other[i] + kShareUnit / 2) >> 16);
    }
    return;
  }
  const Region cut = draw.region(height, width);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = cut.top; y < cut.top + cut.height; ++y) {
      const int64_t first = (c * height + y) * width + cut.left;
      std::copy_n(other + first, cut.width, pixels + first);
    }
  }
}

}  // namespace lockstep
