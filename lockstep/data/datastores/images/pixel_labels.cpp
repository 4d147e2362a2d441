#include "lockstep/data/datastores/images/pixel_labels.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/images/resize.h"
#include "lockstep/data/images/image_codecs.h"
#include "lockstep/data/images/image_format.h"

namespace lockstep {
namespace {

constexpr int64_t kMostValue = 255;
constexpr size_t kColors = 3;  // numbers of a color

uint32_t packed_value(const std::vector<int64_t>& value) {
  uint32_t all = 0;
  for (const int64_t part : value) all = all << 8 | static_cast<uint32_t>(part);
  return all;
}

// "7", "[128, 64, 128]"
std::string value_text(const std::vector<int64_t>& value) {
  if (value.size() == 1) return std::to_string(value[0]);
  std::string text;
  for (const int64_t part : value) text += (text.empty() ? "" : ", ") + std::to_string(part);
  return "[" + text + "]";
}

std::string value_text(uint32_t value, bool colors) {
  if (!colors) return std::to_string(value);
  return value_text({value >> 16, value >> 8 & kMostValue, value & kMostValue});
}

void check_value(const std::vector<int64_t>& value, const std::string& what) {
  const bool fits = (value.size() == 1 || value.size() == kColors) &&
                    std::ranges::all_of(value, [](int64_t v) { return v >= 0 && v <= kMostValue; });
  if (fits) return;
  throw InvalidArgument("[pixel classes] " + what + " has the value " + value_text(value),
                        "one number from 0 to 255, or three: red, green and blue");
}

// Examples whose only input is a label image, read from images in memory.
class LabelImages final : public DatastoreWrapper {
 public:
  LabelImages(DatastorePtr images, PixelClasses classes)
      : DatastoreWrapper(std::move(images)), coding_(std::move(classes)) {
    check_single_images(wrapped(), "label images");
  }

  ExampleSpec spec() const override { return {.inputs = {label_image_spec()}}; }
  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    Image& image = image_in(example, index);
    image = coding_.decode(image, name(index) + " (" + describe() + ")");
    return one_input(std::move(image), ClassLabel{0}, coding_.content_of(example.content));
  }
  int64_t label(int64_t index) const override {
    wrapped().label(index);
    return 0;
  }
  const std::vector<std::string>& classes() const override { return coding_.classes().names; }
  Digest content_digest(int64_t index) const override {
    return coding_.content_of(wrapped().content_digest(index));
  }

 private:
  const PixelCoding coding_;
};

std::string without_extension(const std::string& name) {
  const size_t dot = name.find_last_of("./");
  return dot == std::string::npos || name[dot] == '/' ? name : name.substr(0, dot);
}

}  // namespace

void PixelClasses::check() const {
  constexpr size_t kMost = 255;
  if (names.empty() || names.size() > kMost) {
    throw InvalidArgument("[pixel classes] there are " + std::to_string(names.size()) + " classes",
                          "1 to 255 are possible");
  }
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size()) {
    throw InvalidArgument("[pixel classes] two classes have the same name");
  }
  if (!values.empty() && values.size() != names.size()) {
    throw InvalidArgument("[pixel classes] there are " + std::to_string(names.size()) +
                          " classes and " + std::to_string(values.size()) + " values");
  }
  std::map<uint32_t, std::string> taken;
  const auto add = [&](const std::vector<int64_t>& value, const std::string& what) {
    check_value(value, what);
    if ((value.size() == kColors) != colors()) {
      throw InvalidArgument("[pixel classes] " + what + " has the value " + value_text(value) +
                                ", but others are " + (colors() ? "colors" : "single numbers"),
                            "all are numbers (gray values, indices of palettes), or all are "
                            "colors [red, green, blue]");
    }
    const auto [entry, added] = taken.emplace(packed_value(value), what);
    if (added) return;
    throw InvalidArgument("[pixel classes] " + entry->second + " and " + what +
                          " have the same value " + value_text(value));
  };
  for (size_t i = 0; i < names.size(); ++i) {
    add(values.empty() ? std::vector{static_cast<int64_t>(i)} : values[i],
        "the class `" + printable(names[i]) + "`");
  }
  if (!ignored.empty()) add(ignored, "ignored_value");
}

bool PixelClasses::colors() const { return !values.empty() && values[0].size() == kColors; }

PixelCoding::PixelCoding(PixelClasses classes) : classes_(std::move(classes)) {
  classes_.check();
  numbers_.fill(kNone);
  Digester digester;
  digester.add("pixel classes");
  const auto add = [&](const std::vector<int64_t>& value, uint8_t to) {
    const uint32_t packed = packed_value(value);
    digester.add(static_cast<uint64_t>(packed));
    digester.add(static_cast<uint64_t>(to));
    if (classes_.colors()) {
      colors_[packed] = to;
    } else {
      numbers_.at(packed) = to;
    }
  };
  digester.add(static_cast<uint64_t>(classes_.colors()));
  for (size_t i = 0; i < classes_.names.size(); ++i) {
    add(classes_.values.empty() ? std::vector{static_cast<int64_t>(i)} : classes_.values[i],
        static_cast<uint8_t>(i));
  }
  if (!classes_.ignored.empty()) add(classes_.ignored, ignored_pixel);
  digest_ = digester.finish();
}

Digest PixelCoding::content_of(const Digest& stored) const {
  Digester digester;
  digester.add(digest_);
  digester.add(stored);
  return digester.finish();
}

int16_t PixelCoding::class_of(uint32_t value) const {
  if (!classes_.colors()) return numbers_.at(value);
  const auto found = colors_.find(value);
  return found == colors_.end() ? kNone : int16_t{found->second};
}

void PixelCoding::refuse_value(const Image& image, size_t pixel, uint32_t value,
                               const std::string& name) const {
  const auto width = static_cast<size_t>(image.width);
  throw DataError("[pixel labels] " + name + ": the pixel in row " + std::to_string(pixel / width) +
                      ", column " + std::to_string(pixel % width) + " (from 0) has the value " +
                      value_text(value, classes_.colors()) + ", which is that of none of the " +
                      std::to_string(classes_.names.size()) + " classes",
                  classes_.ignored.empty()
                      ? "pixel_classes can give each class a value; ignored_value = " +
                            value_text(value, classes_.colors()) + " leaves such pixels out"
                      : "pixel_classes can give each class a value");
}

Image PixelCoding::decoded(const Image& image, const Palette& palette,
                           const std::string& name) const {
  const bool colors = classes_.colors();
  if (image.channels == kColors && !colors) {
    throw DataError("[pixel labels] " + name + " has colors, but the classes are single numbers",
                    "give the color of each class: pixel_classes = { road = [128, 64, 128], ... }");
  }
  Image labels{image.height, image.width, 1, {}};
  const auto count = static_cast<size_t>(image.height * image.width);
  labels.pixels.resize(count);
  uint32_t last = 0;
  int16_t of_last = class_of(last);
  for (size_t i = 0; i < count; ++i) {
    uint32_t value = image.pixels[i * static_cast<size_t>(image.channels)];
    if (image.channels == kColors) {
      value = value << 16 | uint32_t{image.pixels[3 * i + 1]} << 8 | image.pixels[3 * i + 2];
    } else if (colors) {
      const std::array<uint8_t, 3> gray{image.pixels[i], image.pixels[i], image.pixels[i]};
      const std::array<uint8_t, 3>& color = palette.empty() ? gray : palette[image.pixels[i]];
      value = uint32_t{color[0]} << 16 | uint32_t{color[1]} << 8 | color[2];
    }
    if (value != last) of_last = class_of(value);
    last = value;
    if (of_last == kNone) refuse_value(image, i, value, name);
    labels.pixels[i] = static_cast<uint8_t>(of_last);
  }
  return labels;
}

Image PixelCoding::decode(std::span<const std::byte> bytes, const std::string& name) const {
  const RecognizedImage format = recognize_image(bytes);
  if (format.format != ImageFormat::png) {
    const bool lossy = format.format == ImageFormat::jpeg || format.format == ImageFormat::webp;
    throw DataError(
        "[pixel labels] " + name + " is " +
            (format.name.empty() ? "not an image" : "a " + std::string(format.name) + " image") +
            ", and label images are PNG files",
        lossy ? "its compression changes values at edges, so labels cannot be read from it: write "
                "the label images as PNG"
              : "convert it to PNG");
  }
  // Gray is expanded where classes are colors, as in other images.
  const detail::StoredPng png = detail::decode_stored_png(bytes, name, !classes_.colors());
  constexpr int kMostBits = 8;
  if (png.bits > kMostBits) {
    throw DataError(
        "[pixel labels] " + name + " has " + std::to_string(png.bits) + " bits for each value",
        "label images have at most 8: write them as PNG with 8 bits");
  }
  return decoded(png.image, png.palette, name);
}

Image PixelCoding::decode(const Image& image, const std::string& name) const {
  return decoded(image, {}, name);
}

Image resize_labels(const Image& labels, int64_t height, int64_t width) {
  if (labels.channels != 1 || labels.height < 1 || labels.width < 1 || height < 1 || width < 1 ||
      height > max_image_side || width > max_image_side) {
    throw InvalidArgument("[resize] labels of " + std::to_string(labels.height) + " x " +
                          std::to_string(labels.width) + " x " + std::to_string(labels.channels) +
                          " cannot be resized to " + std::to_string(height) + " x " +
                          std::to_string(width));
  }
  Image result{height, width, 1, std::vector<uint8_t>(static_cast<size_t>(height * width))};
  const Size2d whole{labels.height, labels.width};
  detail::resize_region_of_labels(labels.pixels.data(), whole,
                                  {.height = labels.height, .width = labels.width}, {height, width},
                                  result.pixels.data());
  return result;
}

Image reduce_labels(const Image& labels, const DecodedScale& scale) {
  const int64_t divisor = scale.divisor;
  const auto reduced = [&](int64_t side) { return (side + divisor - 1) / divisor; };
  const auto middle = [&](int64_t i, int64_t before, int64_t side) {
    return std::clamp(i * divisor + divisor / 2 - before, int64_t{0}, side - 1);
  };
  Image result{reduced(labels.height), reduced(labels.width), 1, {}};
  for (int64_t y = 0; y < result.height; ++y) {
    const int64_t row = middle(y, scale.top, labels.height) * labels.width;
    for (int64_t x = 0; x < result.width; ++x) {
      const int64_t column = middle(x, scale.left, labels.width);
      result.pixels.push_back(labels.pixels[static_cast<size_t>(row + column)]);
    }
  }
  return result;
}

DatastorePtr label_images(DatastorePtr images, PixelClasses classes) {
  return std::make_shared<LabelImages>(std::move(images), std::move(classes));
}

namespace {

// The colors of PASCAL VOC: bit b of red, green and blue are bits 3 (7 - b), + 1 and + 2.
Palette voc_palette() {
  constexpr int kBits = 8;
  Palette palette;
  for (int index = 0; index <= kMostValue; ++index) {
    std::array<uint8_t, 3> color{};
    for (int bit = 0; bit < kBits; ++bit) {
      for (int c = 0; c < 3; ++c) {
        if (3 * bit + c >= kBits) continue;
        const int set = index >> (3 * bit + c) & 1;
        color[static_cast<size_t>(c)] |= static_cast<uint8_t>(set << (kBits - 1 - bit));
      }
    }
    palette.push_back(color);
  }
  return palette;
}

std::array<uint8_t, 3> color_of(const std::vector<int64_t>& value) {
  std::array<uint8_t, 3> color{};
  for (size_t c = 0; c < color.size() && c < value.size(); ++c) {
    color[c] = static_cast<uint8_t>(value[c]);
  }
  return color;
}

}  // namespace

Palette shown_colors(const PixelClasses& classes) {
  const Palette voc = voc_palette();
  Palette colors;
  for (size_t k = 0; k < classes.names.size(); ++k) {
    colors.push_back(classes.colors() ? color_of(classes.values[k]) : voc.at(k));
  }
  colors.push_back({kMostValue, kMostValue, kMostValue});
  return colors;
}

std::vector<std::byte> encode_label_image(const Image& labels, const PixelClasses& classes) {
  classes.check();
  Palette palette;
  std::vector<int64_t> indices;  // of the classes
  int64_t ignored = kMostValue;
  for (size_t k = 0; k < classes.names.size(); ++k) {
    if (classes.colors()) palette.push_back(color_of(classes.values[k]));
    const bool numbered = !classes.colors() && !classes.values.empty();
    indices.push_back(numbered ? classes.values[k][0] : static_cast<int64_t>(k));
  }
  if (classes.colors()) {
    ignored = std::ssize(palette);
    palette.push_back(color_of(classes.ignored));
  } else {
    palette = voc_palette();
    if (!classes.ignored.empty()) ignored = classes.ignored[0];
  }
  Image coded = labels;
  for (uint8_t& pixel : coded.pixels) {
    if (pixel != ignored_pixel && pixel >= indices.size()) {
      throw InvalidArgument("[pixel labels] a label image has the class " + std::to_string(pixel) +
                            ", but there are " + std::to_string(indices.size()));
    }
    pixel = static_cast<uint8_t>(pixel == ignored_pixel ? ignored : indices[pixel]);
  }
  return encode_png(coded, palette);
}

DatastorePtr match_by_stem(const Datastore& images, DatastorePtr targets) {
  if (targets == nullptr) throw InvalidArgument("[match_by_stem] the targets are null");
  std::map<std::string, int64_t> by_name;
  for (int64_t i = 0; i < targets->size(); ++i) {
    const auto [entry, added] = by_name.emplace(without_extension(targets->name(i)), i);
    if (added) continue;
    throw InvalidArgument("[match_by_stem] " + targets->describe() + " has " +
                          targets->name(entry->second) + " and " + targets->name(i) +
                          ", which have one name without their extensions");
  }
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < images.size(); ++i) {
    const auto found = by_name.find(without_extension(images.name(i)));
    if (found == by_name.end()) {
      throw InvalidArgument("[match_by_stem] " + images.name(i) + " of " + images.describe() +
                                " has no label image of its name in " + targets->describe(),
                            "images and label images are matched by their paths in the two "
                            "folders, without extensions");
    }
    indices.push_back(found->second);
  }
  return subset(std::move(targets), std::move(indices));
}

}  // namespace lockstep
