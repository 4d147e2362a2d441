#include "lockstep/data/images/augmentation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/angle.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/images/appearance.h"
#include "lockstep/data/images/augment_sequence.h"
#include "lockstep/data/images/image.h"
#include "lockstep/data/images/regions.h"
#include "lockstep/engine/kernels/images/augment_images.h"

namespace lockstep {
namespace {

// Maps 32 random bits to an integer in [low, high].
int64_t pick(uint32_t bits, const Size2d& range, const char* name) {
  const int64_t low = range[0], high = range[1];
  if (low > high || low < -max_image_side || high > max_image_side) {
    throw InvalidArgument(
        "[augmentation] " + std::string(name) + " is [" + std::to_string(low) + ", " +
            std::to_string(high) + "]",
        "the lower end comes first; both lie within " + std::to_string(max_image_side) + " pixels");
  }
  const uint64_t n = static_cast<uint64_t>(high - low) + 1;
  return low + static_cast<int64_t>((bits * n) >> 32);
}

using detail::area_rule;
using detail::check_draw_range;
using detail::draw_region;
using detail::ratio_rule;

constexpr NumberRangeRule rotation_rule{.min = -360, .max = 360, .symmetric = true};
constexpr NumberRangeRule scale_rule{.min = 0.01, .max = 100};
constexpr NumberRangeRule shear_rule{.min = -89, .max = 89, .symmetric = true};
constexpr NumberRangeRule change_rule{.min = -1, .max = 9, .symmetric = true};
constexpr NumberRangeRule hue_rule{.min = -0.5, .max = 0.5, .symmetric = true};
constexpr NumberRangeRule blur_rule{.min = 0, .max = 100};

// Maps 32 random bits to a number in [low, high].
double pick(uint32_t bits, const NumberRange& range, const NumberRangeRule& rule,
            const char* name) {
  check_draw_range(range, rule, "[augmentation] " + std::string(name));
  const double low = range[0], high = range[1];
  return std::min(high, std::fma(high - low, bits * 0x1p-32, low));
}

// Whether something of this probability happens.
bool happens(uint32_t bits, double probability, const char* name) {
  if (!(probability >= 0 && probability <= 1)) {
    throw InvalidArgument("[augmentation] " + std::string(name) + " is " +
                          std::to_string(probability) + ", but must be between 0 and 1");
  }
  return bits < static_cast<uint64_t>(std::ldexp(probability, 32));
}

// Both factors together must stay within the bounds of one.
void check_factors(const Augmentation& augmentation, const NumberRange& along, const char* name) {
  const double least = augmentation.scale[0] * along[0], most = augmentation.scale[1] * along[1];
  if (least >= scale_rule.min && most <= scale_rule.max) return;
  throw InvalidArgument("[augmentation] scale and " + std::string(name) + " give factors from " +
                            std::to_string(least) + " to " + std::to_string(most),
                        "their product must lie within " + std::to_string(scale_rule.min) +
                            " and " + std::to_string(scale_rule.max));
}

std::array<uint8_t, 3> fill_of(const std::vector<int64_t>& fill) {
  bool valid = fill.size() == 1 || fill.size() == 3;
  for (const int64_t value : fill) valid &= value >= 0 && value <= 255;
  if (!valid) {
    throw InvalidArgument("[augmentation] fill must be one value, or three for color images",
                          "values are 0 to 255");
  }
  std::array<uint8_t, 3> channels{};
  for (size_t c = 0; c < channels.size(); ++c) {
    channels[c] = static_cast<uint8_t>(fill[fill.size() == 1 ? 0 : c]);
  }
  return channels;
}

// One of the 24 orders of four things.
std::array<uint8_t, 4> order_of(uint32_t bits) {
  auto number = static_cast<size_t>((bits * uint64_t{24}) >> 32);
  std::array<uint8_t, 4> order{0, 1, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    const size_t left = 4 - i, chosen = i + number % left;
    std::rotate(order.begin() + i, order.begin() + chosen, order.begin() + chosen + 1);
    number /= left;
  }
  return order;
}

uint64_t eight(const uint8_t* from) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// Copies by words of 8 bytes, the last of which may overlap the one before it. Rows are short, so
// this takes a fraction of the time of a memcpy() call per row.
void copy_bytes(const uint8_t* source, int64_t count, uint8_t* destination) {
  if (count < 8) {
    for (int64_t i = 0; i < count; ++i) destination[i] = source[i];
    return;
  }
  for (int64_t i = 0; i < count; i += 8) {
    const int64_t at = std::min(i, count - 8);
    const uint64_t bytes = eight(source + at);
    std::memcpy(destination + at, &bytes, sizeof bytes);
  }
}

// The same in reversed order. `source` is the last byte.
void copy_bytes_reversed(const uint8_t* source, int64_t count, uint8_t* destination) {
  if (count < 8) {
    for (int64_t i = 0; i < count; ++i) destination[i] = source[-i];
    return;
  }
  for (int64_t i = 0; i < count; i += 8) {
    const int64_t at = std::min(i, count - 8);
    const uint64_t bytes = __builtin_bswap64(eight(source - at - 7));
    std::memcpy(destination + at, &bytes, sizeof bytes);
  }
}

// Writes `count` pixels in reversed order. `source` is the last pixel.
template <int channels>
void copy_reversed(const uint8_t* source, int64_t count, uint8_t* destination) {
  for (int64_t i = 0; i < count; ++i) {
    for (int c = 0; c < channels; ++c) destination[c] = source[c];
    source -= channels;
    destination += channels;
  }
}

void copy_reversed(const uint8_t* source, int64_t count, int64_t channels, uint8_t* destination) {
  switch (channels) {
    case 1:
      return copy_bytes_reversed(source, count, destination);
    case 3:
      return copy_reversed<3>(source, count, destination);
    default:
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(destination + i * channels, source - i * channels,
                    static_cast<size_t>(channels));
      }
  }
}

}  // namespace

void Augmentation::visit(FieldVisitor& v) {
  v.flag("reflect_x", reflect_x, "flip images left to right with probability 0.5");
  v.flag("reflect_y", reflect_y, "flip images top to bottom with probability 0.5");
  v.range("translate_x", translate_x,
          "horizontal translation in pixels, to the right, drawn from [low, high]");
  v.range("translate_y", translate_y,
          "vertical translation in pixels, down, drawn from [low, high]");
  v.number_range("rotation", rotation,
                 "rotation in degrees, counterclockwise about the center, drawn from [low, high]",
                 rotation_rule);
  v.number_range("scale", scale, "scale factor of height and width, drawn from [low, high]",
                 scale_rule);
  v.number_range("shear_x", shear_x,
                 "horizontal shear in degrees, lower rows to the right, drawn from [low, high]",
                 shear_rule);
  v.number_range("shear_y", shear_y,
                 "vertical shear in degrees, right columns down, drawn from [low, high]",
                 shear_rule);
  v.number_range("scale_x", scale_x, "further scale factor of the width, drawn from [low, high]",
                 scale_rule);
  v.number_range("scale_y", scale_y, "further scale factor of the height, drawn from [low, high]",
                 scale_rule);
  v.integers("fill", fill,
             "value of pixels that come from outside, and of erased ones: one, or one for each "
             "channel",
             {.min = 0, .max = 255});
  v.number_range("brightness", brightness,
                 "change of brightness: factor 1 + v, v drawn from [low, high]", change_rule);
  v.number_range("contrast", contrast,
                 "change of contrast about the mean gray: factor 1 + v, v drawn from [low, high]",
                 change_rule);
  v.number_range("saturation", saturation,
                 "change of saturation: factor 1 + v, v drawn from [low, high]", change_rule);
  v.number_range("hue", hue,
                 "change of hue in turns of the circle of colors, drawn from [low, high]",
                 hue_rule);
  v.number_range("blur", blur,
                 "Gaussian blur: standard deviation in pixels, drawn from [low, high]", blur_rule);
  v.number("blur_probability", blur_probability, "probability that an image is blurred",
           {.min = 0, .max = 1});
  v.number("random_erasing", random_erasing,
           "probability that a rectangle of an image is erased (becomes `fill`)",
           {.min = 0, .max = 1});
  v.number_range("erasing_area", erasing_area,
                 "share of the image that is erased, drawn from [low, high]", area_rule);
  v.number_range("erasing_ratio", erasing_ratio,
                 "height over width of what is erased, drawn from [low, high] by its logarithm",
                 ratio_rule);
  v.number("mixup", mixup,
           "mixes each image with another one of the mini-batch: parameter of the Beta "
           "distribution of their shares; 0: off",
           {.min = 0, .max = 100});
  v.number("cutmix", cutmix,
           "the same, by a rectangle of the other image; with mixup each mini-batch takes one of "
           "both with probability 0.5",
           {.min = 0, .max = 100});
  visit_sequence_fields(*this, v);
}

void Augmentation::check() const {
  draw_augmentation(*this, 0, 0, 0);
  draw_mix(*this, 0, 0, 0);
  check_sequence_fields(*this);
}

bool Augmentation::changes_appearance() const {
  constexpr NumberRange none{0, 0};
  return brightness != none || contrast != none || saturation != none || hue != none ||
         (blur != none && blur_probability > 0) || random_erasing > 0;
}

bool Augmentation::only_maps() const {
  return !changes_appearance() && !mixes() && fill_of(fill) == std::array<uint8_t, 3>{};
}

std::string Augmentation::image_change() const {
  constexpr Size2d no_shift{0, 0};
  constexpr NumberRange no_angle{0, 0}, no_factor{1, 1};
  if (reflect_x) return "reflect_x";
  if (reflect_y) return "reflect_y";
  if (translate_x != no_shift) return "translate_x";
  if (translate_y != no_shift) return "translate_y";
  if (rotation != no_angle) return "rotation";
  if (scale != no_factor) return "scale";
  if (shear_x != no_angle) return "shear_x";
  if (shear_y != no_angle) return "shear_y";
  if (scale_x != no_factor) return "scale_x";
  if (scale_y != no_factor) return "scale_y";
  if (brightness != no_angle) return "brightness";
  if (contrast != no_angle) return "contrast";
  if (saturation != no_angle) return "saturation";
  if (hue != no_angle) return "hue";
  if (blur != no_angle && blur_probability > 0) return "blur";
  if (random_erasing > 0) return "random_erasing";
  if (mixup > 0) return "mixup";
  return cutmix > 0 ? "cutmix" : "";
}

bool Augmentation::moves() const {
  constexpr Size2d no_shift{0, 0};
  constexpr NumberRange no_angle{0, 0}, no_factor{1, 1};
  return translate_x != no_shift || translate_y != no_shift || rotation != no_angle ||
         scale != no_factor || shear_x != no_angle || shear_y != no_angle || scale_x != no_factor ||
         scale_y != no_factor;
}

namespace {

void draw_appearance(const Augmentation& augmentation, const RandomStream& stream,
                     AugmentationDraw& draw) {
  const double deviation = pick(stream.block(3)[3], augmentation.blur, blur_rule, "blur");
  if (happens(stream.block(3)[2], augmentation.blur_probability, "blur_probability")) {
    draw.blur = deviation;
  }
  const std::array<uint32_t, 4> colors = stream.block(4);
  draw.color = {.brightness = pick(colors[0], augmentation.brightness, change_rule, "brightness"),
                .contrast = pick(colors[1], augmentation.contrast, change_rule, "contrast"),
                .saturation = pick(colors[2], augmentation.saturation, change_rule, "saturation"),
                .hue = pick(colors[3], augmentation.hue, hue_rule, "hue")};
  const std::array<uint32_t, 4> others = stream.block(5);
  if (draw.color != ColorDraw()) draw.color.order = order_of(others[0]);
  draw.erases = happens(others[1], augmentation.random_erasing, "random_erasing");
  constexpr uint64_t kErasing = 32;
  if (augmentation.random_erasing > 0) {
    check_draw_range(augmentation.erasing_area, area_rule, "[augmentation] erasing_area");
    check_draw_range(augmentation.erasing_ratio, ratio_rule, "[augmentation] erasing_ratio");
    draw.erasing =
        draw_region(stream, kErasing, augmentation.erasing_area, augmentation.erasing_ratio);
  }
}

}  // namespace

AugmentationDraw AugmentationDraw::only_moves() const {
  AugmentationDraw moves = *this;
  moves.color = {};
  moves.blur = 0;
  moves.erases = false;
  return moves;
}

AugmentationDraw AugmentationDraw::for_labels() const {
  AugmentationDraw moves = only_moves();
  moves.nearest = true;
  moves.fill.fill(ignored_pixel);
  return moves;
}

AugmentationDraw draw_augmentation(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                                   int64_t index_in_listing, int64_t repetition) {
  const RandomStream stream({.seed = seed,
                             .use = RandomUse::augment,
                             .a = static_cast<uint64_t>(epoch),
                             .b = static_cast<uint64_t>(index_in_listing),
                             .c = static_cast<uint64_t>(repetition)});
  const std::array<uint32_t, 4> words = stream.block(0);
  const std::array<uint32_t, 4> more = stream.block(1);
  AugmentationDraw draw{.reflect_x = augmentation.reflect_x && (words[0] >> 31) != 0,
                        .shift_x = pick(words[1], augmentation.translate_x, "translate_x"),
                        .shift_y = pick(words[2], augmentation.translate_y, "translate_y"),
                        .reflect_y = augmentation.reflect_y && (words[3] >> 31) != 0,
                        .rotation = pick(more[0], augmentation.rotation, rotation_rule, "rotation"),
                        .scale = pick(more[1], augmentation.scale, scale_rule, "scale"),
                        .shear_x = pick(more[2], augmentation.shear_x, shear_rule, "shear_x"),
                        .shear_y = pick(more[3], augmentation.shear_y, shear_rule, "shear_y")};
  const std::array<uint32_t, 4> scales = stream.block(3);
  draw.scale_x = pick(scales[0], augmentation.scale_x, scale_rule, "scale_x");
  draw.scale_y = pick(scales[1], augmentation.scale_y, scale_rule, "scale_y");
  check_factors(augmentation, augmentation.scale_x, "scale_x");
  check_factors(augmentation, augmentation.scale_y, "scale_y");
  draw.fill = fill_of(augmentation.fill);
  draw_appearance(augmentation, stream, draw);
  return draw;
}

namespace {

// What comes from outside, for each of the interleaved channels.
class Filler {
 public:
  // `first`: the channel of the draw's fill that is the first of `channels`.
  Filler(const AugmentationDraw& draw, int64_t first, int64_t channels) : channels_(channels) {
    for (int64_t c = 0; c < channels; ++c)
      values_.at(static_cast<size_t>(c)) =
          draw.fill.at(static_cast<size_t>(std::min<int64_t>(first + c, 2)));
    for (int64_t c = 1; c < channels; ++c) same_ &= values_[static_cast<size_t>(c)] == values_[0];
  }
  void operator()(uint8_t* pixels, size_t bytes) const {
    if (same_) {
      std::memset(pixels, values_[0], bytes);
      return;
    }
    for (size_t i = 0; i < bytes; ++i) pixels[i] = values_[i % static_cast<size_t>(channels_)];
  }

 private:
  int64_t channels_;
  std::array<uint8_t, 4> values_{};
  bool same_ = true;
};

// Applies reflections and shifts by copying pixels.
void copy_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
               const AugmentationDraw& draw, const Filler& fill, uint8_t* destination) {
  const auto bytes = [channels](int64_t pixels) { return static_cast<size_t>(pixels * channels); };
  const int64_t left = std::clamp<int64_t>(draw.shift_x, 0, width);  // columns that become empty
  const int64_t right = std::clamp<int64_t>(-draw.shift_x, 0, width);
  const int64_t top = std::clamp<int64_t>(draw.shift_y, 0, height);  // rows that become empty
  const int64_t bottom = std::clamp<int64_t>(-draw.shift_y, 0, height);
  const int64_t columns = std::max<int64_t>(width - left - right, 0);
  if (!draw.reflect_x && !draw.reflect_y && columns > 0 && top + bottom < height) {
    // Pixel p comes from p - offset, so one copy serves all rows. Columns that wrapped around are
    // then cleared.
    const int64_t offset = draw.shift_y * width + draw.shift_x, pixels = height * width;
    const int64_t begin = std::max<int64_t>(offset, 0), end = pixels + std::min<int64_t>(offset, 0);
    std::memcpy(destination + bytes(begin), source + bytes(begin - offset), bytes(end - begin));
    fill(destination, bytes(top * width));
    fill(destination + bytes(pixels - bottom * width), bytes(bottom * width));
    if (columns == width) return;
    for (int64_t y = top; y < height - bottom; ++y) {
      fill(destination + bytes(y * width), bytes(left));
      fill(destination + bytes((y + 1) * width - right), bytes(right));
    }
    return;
  }
  if (columns < width || top + bottom > 0) fill(destination, bytes(height * width));
  // Source column that is copied to column `left`.
  const int64_t first = draw.reflect_x ? width - 1 - right : right;
  for (int64_t y = top; y < height - bottom; ++y) {
    uint8_t* row = destination + bytes(y * width);
    const int64_t reflected = y - draw.shift_y;
    const int64_t from_row = draw.reflect_y ? height - 1 - reflected : reflected;
    const uint8_t* from = source + bytes(from_row * width);
    if (draw.reflect_x) {
      if (columns > 0) copy_reversed(from + bytes(first), columns, channels, row + bytes(left));
    } else {
      copy_bytes(from + bytes(first), static_cast<int64_t>(bytes(columns)), row + bytes(left));
    }
  }
}

// The source position of a pixel: x = xx dx + xy dy, y = yx dx + yy dy, relative to the centers.
struct Inverse {
  double xx = 1, xy = 0, yx = 0, yy = 1;
};

Inverse inverse_of(const AugmentationDraw& draw) {
  const auto [sine, cosine] = sine_and_cosine_of_degrees(draw.rotation);
  const double tx = tangent_of_degrees(draw.shear_x), ty = tangent_of_degrees(draw.shear_y);
  // The inverse order: scale and rotation first (rows point down), then the shears, then
  // reflections.
  const double along_x = draw.scale * draw.scale_x, along_y = draw.scale * draw.scale_y;
  Inverse m{cosine / along_x, -sine / along_y, sine / along_x, cosine / along_y};
  m.yx = std::fma(-ty, m.xx, m.yx);
  m.yy = std::fma(-ty, m.xy, m.yy);
  m.xx = std::fma(-tx, m.yx, m.xx);
  m.xy = std::fma(-tx, m.yy, m.xy);
  if (draw.reflect_x) m = {-m.xx, -m.xy, m.yx, m.yy};
  if (draw.reflect_y) m = {m.xx, m.xy, -m.yx, -m.yy};
  return m;
}

int64_t fixed(double value) {
  return static_cast<int64_t>(std::floor(value * static_cast<double>(ImageMap::kOne) + 0.5));
}

}  // namespace

ImageMap map_of(const AugmentationDraw& draw) {
  const Inverse m = inverse_of(draw);
  return {fixed(m.xx), fixed(m.xy), fixed(m.yx), fixed(m.yy), draw.shift_x, draw.shift_y};
}

void augment_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                  const AugmentationDraw& draw, uint8_t* destination) {
  const kernels::ImageLayout layout = kernels::interleaved(channels, height, width);
  if (draw.whole_pixels()) {
    copy_into(source, height, width, channels, draw, Filler(draw, 0, channels), destination);
  } else {
    kernels::cpu::augment_image(source, layout, map_of(draw), draw.fill, destination, draw.nearest);
  }
  detail::change_appearance(draw, layout, destination);
}

void augment_into(const Image& source, const AugmentationDraw& draw, uint8_t* destination) {
  augment_into(source.pixels.data(), source.height, source.width, source.channels, draw,
               destination);
}

void augment_planes_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                         const AugmentationDraw& draw, uint8_t* destination) {
  const kernels::ImageLayout layout = kernels::planar(channels, height, width);
  if (draw.whole_pixels()) {
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t plane = c * height * width;
      copy_into(source + plane, height, width, 1, draw, Filler(draw, c, 1), destination + plane);
    }
  } else {
    kernels::cpu::augment_image(source, layout, map_of(draw), draw.fill, destination, draw.nearest);
  }
  detail::change_appearance(draw, layout, destination);
}

}  // namespace lockstep
