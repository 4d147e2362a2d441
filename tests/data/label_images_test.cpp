// Label images: how they are read, matched, and changed together with their images.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/pixel_labels.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/data/images/image.h"
#include "tests/data/augmented.h"
#include "tests/data/encode.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;
using testing::patterned;
using testing::TemporaryFolder;

const PixelClasses kThree{.names = {"road", "sky", "tree"}};

Image labels_of(int64_t height, int64_t width, std::vector<uint8_t> pixels) {
  return {height, width, 1, std::move(pixels)};
}

Image some_labels(int64_t height, int64_t width, uint32_t salt, int classes = 3) {
  Image image = patterned(height, width, 1, salt);
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel % classes);
  return image;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

Image decoded(const std::vector<std::byte>& bytes, const PixelClasses& classes) {
  return PixelCoding(classes).decode(bytes, "mask.png");
}

TEST(LabelImages, AreReadByNumberAndByColor) {
  const Image indices = labels_of(2, 3, {0, 1, 2, 2, 1, 0});
  EXPECT_EQ(decoded(encode_png(indices), kThree), indices);
  // A palette is read by index where classes are numbers, whatever its colors.
  const Palette palette{{9, 8, 7}, {1, 2, 3}, {200, 0, 200}};
  EXPECT_EQ(decoded(encode_png(indices, palette), kThree), indices);
  PixelClasses colors{.names = {"road", "sky", "tree"},
                      .values = {{200, 0, 200}, {9, 8, 7}, {1, 2, 3}}};
  const Image other = labels_of(2, 3, {1, 2, 0, 0, 2, 1});
  EXPECT_EQ(decoded(encode_png(indices, palette), colors), other);
  Image color{2, 3, 3, {}};
  for (const uint8_t index : indices.pixels) {
    color.pixels.insert(color.pixels.end(), palette[index].begin(), palette[index].end());
  }
  EXPECT_EQ(decoded(encode_png(color), colors), other);
  PixelClasses grays{.names = {"a", "b"}, .values = {{7, 7, 7}, {0, 0, 0}}};
  EXPECT_EQ(decoded(encode_png(labels_of(1, 3, {7, 0, 7})), grays), labels_of(1, 3, {0, 1, 0}));
  const PixelClasses numbers{.names = {"a", "b"}, .values = {{17}, {4}}, .ignored = {255}};
  EXPECT_EQ(decoded(encode_png(labels_of(1, 3, {4, 255, 17})), numbers),
            labels_of(1, 3, {1, ignored_pixel, 0}));
}

// Gray values and indices of palettes are those of the file, not expanded to 255.
TEST(LabelImages, OfFewerBitsKeepTheirValues) {
  for (const int bits : {1, 2, 4}) {
    const int most = (1 << bits) - 1, each = 8 / bits;
    PixelClasses classes;
    std::vector<uint8_t> values;
    std::vector<png_color> palette;
    for (int value = 0; value <= most; ++value) {
      classes.names.push_back(std::to_string(value));
      palette.push_back({static_cast<png_byte>(9 * value), 5, 3});
    }
    std::vector<uint8_t> row(static_cast<size_t>((5 + each - 1) / each));
    for (int x = 0; x < 5; ++x) {
      const int value = (most - x) & most;
      values.push_back(static_cast<uint8_t>(value));
      row[static_cast<size_t>(x / each)] |=
          static_cast<uint8_t>(value << (8 - bits * (x % each + 1)));
    }
    const auto gray = testing::raw_png(1, 5, {row}, {.bits = bits, .type = PNG_COLOR_TYPE_GRAY});
    EXPECT_EQ(decoded(gray, classes), labels_of(1, 5, values)) << bits;
    const auto indexed = testing::raw_png(
        1, 5, {row}, {.bits = bits, .type = PNG_COLOR_TYPE_PALETTE, .palette = palette});
    EXPECT_EQ(decoded(indexed, classes), labels_of(1, 5, values)) << bits;
  }
  const auto wide =
      testing::raw_png(1, 2, {{0, 0, 0, 1}}, {.bits = 16, .type = PNG_COLOR_TYPE_GRAY});
  expect_says(message_of<Error>([&] { decoded(wide, kThree); }), "16 bits");
}

TEST(LabelImages, AreWrittenAsTheyAreRead) {
  const std::vector<PixelClasses> all{
      kThree,
      {.names = {"a", "b", "c"}, .values = {{7}, {200}, {0}}, .ignored = {9}},
      {.names = {"a", "b", "c"},
       .values = {{1, 2, 3}, {255, 255, 255}, {0, 0, 9}},
       .ignored = {224, 224, 192}},
      {.names = {"a", "b", "c"}, .ignored = {255}}};
  for (const PixelClasses& classes : all) {
    Image labels = some_labels(7, 5, 3);
    if (!classes.ignored.empty()) labels.pixels[3] = ignored_pixel;
    EXPECT_EQ(decoded(encode_label_image(labels, classes), classes), labels);
  }
  expect_says(message_of<Error>([&] { encode_label_image(labels_of(1, 1, {3}), kThree); }),
              "class 3");
  // The colors of PASCAL VOC: 1 is dark red, 2 dark green.
  const Image shown =
      decode_image(encode_label_image(labels_of(1, 3, {0, 1, 2}), kThree), "mask.png");
  EXPECT_EQ(shown.pixels, (std::vector<uint8_t>{0, 0, 0, 128, 0, 0, 0, 128, 0}));
}

TEST(LabelImages, RefuseWhatIsNotAClass) {
  const auto said = [](const std::vector<std::byte>& bytes, const PixelClasses& classes) {
    return message_of<Error>([&] { decoded(bytes, classes); });
  };
  const std::string value = said(encode_png(labels_of(2, 3, {0, 1, 2, 2, 9, 0})), kThree);
  expect_says(value, "mask.png");
  expect_says(value, "row 1, column 1 (from 0) has the value 9");
  const PixelClasses colors{.names = {"a"}, .values = {{1, 2, 3}}};
  expect_says(said(encode_png(Image{1, 1, 3, {1, 2, 4}}), colors), "[1, 2, 4]");
  expect_says(said(encode_png(Image{1, 1, 3, {1, 2, 4}}), kThree), "has colors");
  expect_says(said(testing::encode_jpeg(patterned(8, 8, 1, 1)), kThree), "JPEG");
  expect_says(said(bytes_of("no image"), kThree), "is not an image");
  expect_says(said(bytes_of(""), kThree), "is not an image");
  std::vector<std::byte> cut = encode_png(some_labels(9, 9, 1));
  cut.resize(cut.size() / 2);
  expect_says(said(cut, kThree), "damaged PNG");
}

TEST(LabelImages, ClassesAreChecked) {
  const auto said = [](const PixelClasses& classes) {
    return message_of<Error>([&] { classes.check(); });
  };
  expect_says(said({}), "there are 0 classes");
  expect_says(said({.names = std::vector<std::string>(256, "x")}), "there are 256 classes");
  expect_says(said({.names = {"a", "a"}}), "the same name");
  expect_says(said({.names = {"a", "b"}, .values = {{1}}}), "2 classes and 1 values");
  expect_says(said({.names = {"a", "b"}, .values = {{1}, {1}}}), "the same value 1");
  expect_says(said({.names = {"a", "b"}, .values = {{1}, {1, 2, 3}}}), "single numbers");
  expect_says(said({.names = {"a"}, .values = {{256}}}), "the value 256");
  expect_says(said({.names = {"a"}, .values = {{-1}}}), "the value -1");
  expect_says(said({.names = {"a"}, .values = {{1, 2}}}), "the value [1, 2]");
  expect_says(said({.names = {"a"}, .ignored = {0}}), "the same value 0");
  expect_says(said({.names = {"a"}, .ignored = {1, 2, 3}}), "single numbers");
  std::vector<std::string> many;
  for (int i = 0; i < 255; ++i) many.push_back(std::to_string(i));
  EXPECT_NO_THROW(PixelClasses{.names = many}.check());
}

TEST(LabelImages, OfAFolderAreMatchedWithoutExtensions) {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) {
    const std::string name = std::to_string(i);
    folder.write("images/x/" + name + ".jpg",
                 testing::encode_jpeg(patterned(4, 6, 3, static_cast<uint32_t>(i))));
    folder.write("masks/x/" + name + ".png",
                 encode_png(some_labels(4, 6, static_cast<uint32_t>(i))));
  }
  folder.write("masks/other.png", encode_png(some_labels(2, 2, 1)));
  const DatastorePtr images = image_folder(folder.path + "/images", {.labeled = false});
  const auto opened = [&](const PixelClasses& classes) {
    return image_folder(folder.path + "/masks", {.labeled = false, .pixel_classes = classes});
  };
  const DatastorePtr masks = match_by_stem(*images, opened(kThree));
  EXPECT_EQ(masks->size(), 3);
  EXPECT_TRUE(masks->spec().inputs[0].pixel_labels());
  EXPECT_EQ(masks->classes(), kThree.names);
  EXPECT_EQ(masks->label(2), 0);
  const DatastorePtr both = with_targets(images, masks);
  EXPECT_EQ(both->classes(), kThree.names);
  EXPECT_EQ(std::get<Image>(both->read(1).target), some_labels(4, 6, 1));
  EXPECT_EQ(both->read(1).content, both->content_digest(1));
  // The meaning of the values is part of the contents.
  const DatastorePtr others =
      match_by_stem(*images, opened({.names = kThree.names, .values = {{2}, {1}, {0}}}));
  EXPECT_NE(others->content_digest(0), masks->content_digest(0));
  expect_says(message_of<Error>([&] {
                match_by_stem(*image_folder(folder.path + "/masks", {.labeled = false}), images);
              }),
              "other.png");
  folder.write("masks/x/1.bmp", encode_png(some_labels(4, 6, 1)));
  expect_says(message_of<Error>([&] { match_by_stem(*images, opened(kThree)); }),
              "one name without their extensions");
  expect_says(
      message_of<Error>([&] { image_folder(folder.path + "/masks", {.pixel_classes = kThree}); }),
      "have the classes of their pixels");
}

TEST(LabelImages, HaveTheSizeOfTheirImage) {
  const DatastorePtr images = array_datastore(std::vector<Image>{patterned(4, 6, 3, 1)});
  const DatastorePtr masks =
      label_images(array_datastore(std::vector<Image>{some_labels(4, 5, 1)}), kThree);
  const std::string said = message_of<Error>([&] { with_targets(images, masks)->read(0); });
  expect_says(said, "has 4 x 6 pixels");
  expect_says(said, "has 4 x 5");
}

DatastorePtr pairs(int64_t height, int64_t width, int64_t n = 5) {
  std::vector<Image> images, masks;
  for (int64_t i = 0; i < n; ++i) {
    masks.push_back(some_labels(height, width, static_cast<uint32_t>(i)));
    images.push_back(masks.back());
  }
  return with_targets(array_datastore(images), label_images(array_datastore(masks), kThree));
}

TEST(LabelImages, AreResizedByNearestPixels) {
  // PIL.Image.resize(..., NEAREST) of the values 0 1 2 3 4 to 3 and to 8.
  const Image row = labels_of(1, 5, {0, 1, 2, 3, 4});
  EXPECT_EQ(resize_labels(row, 1, 3).pixels, (std::vector<uint8_t>{0, 2, 4}));
  EXPECT_EQ(resize_labels(row, 1, 8).pixels, (std::vector<uint8_t>{0, 0, 1, 2, 2, 3, 4, 4}));
  const DatastorePtr all = pairs(6, 9);
  const Example example = resized(all, 3, 3)->read(1);
  EXPECT_EQ(std::get<Image>(example.target), resize_labels(some_labels(6, 9, 1), 3, 3));
  EXPECT_EQ(std::get<Image>(example.inputs[0]), resize(some_labels(6, 9, 1), 3, 3));
  const Example cut = center_cropped(all, 4, 3)->read(2);
  EXPECT_EQ(std::get<Image>(cut.target), crop(some_labels(6, 9, 2), 4, 3));
  EXPECT_EQ(std::get<Image>(cut.target), std::get<Image>(cut.inputs[0]));
  EXPECT_EQ(std::get<Image>(shorter_resized(all, 4)->read(0).target).width, 6);
  expect_says(message_of<Error>([&] { resize_labels(row, 0, 3); }), "cannot be resized");
  EXPECT_THROW(transform(all, [](Image image) { return image; }), Unsupported);
}

// Moves of whole pixels keep an image and its equal labels equal, but for what comes from outside.
TEST(LabelImages, AreAugmentedAsTheirImages) {
  const Image labels = some_labels(8, 7, 5);
  for (const AugmentationDraw& draw :
       {AugmentationDraw{.reflect_x = true}, AugmentationDraw{.reflect_y = true},
        AugmentationDraw{.shift_x = 3, .shift_y = -2},
        AugmentationDraw{.reflect_x = true, .shift_y = 1}}) {
    const Image image = testing::augmented(labels, draw);
    const Image moved = testing::augmented(labels, draw.for_labels());
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      if (moved.pixels[i] == ignored_pixel) {
        EXPECT_EQ(image.pixels[i], 0);
      } else {
        EXPECT_EQ(moved.pixels[i], image.pixels[i]);
      }
    }
  }
  // Four quarter turns of a square are the image itself; others have classes of the source alone.
  const Image square = some_labels(7, 7, 2);
  Image turned = square;
  const AugmentationDraw quarter = AugmentationDraw{.rotation = 90}.for_labels();
  for (int i = 0; i < 4; ++i) turned = testing::augmented(turned, quarter);
  EXPECT_EQ(turned, square);
  const AugmentationDraw other =
      AugmentationDraw{.rotation = 31, .scale = 1.3, .blur = 2, .erases = true}.for_labels();
  for (const uint8_t pixel : testing::augmented(square, other).pixels) {
    EXPECT_TRUE(pixel < 3 || pixel == ignored_pixel) << int{pixel};
  }
}

TEST(LabelImages, MiniBatchesHaveLabelsOfPixels) {
  MiniBatchQueueOptions options;
  options.mini_batch_size = 3;
  options.drop_last = false;
  options.shuffle = Shuffle::never;
  options.max_epochs = 2;
  options.augmentation.translate_x = {-2, 2};
  options.augmentation.reflect_x = true;
  options.augmentation.brightness = {-0.5, 0.5};
  options.resized_crop = RandomResizedCrop();
  const DatastorePtr data = pairs(9, 8);
  MiniBatchQueue queue(data, {Shape{1, 6, 6}}, options);
  int64_t ignored = 0, all = 0;
  while (queue.has_data()) {
    const auto batch = queue.next();
    const RowArray& labels = (*batch)["labels"];
    EXPECT_EQ(labels.type, DType::i32);
    EXPECT_EQ(labels.shape, (Shape{6, 6}));
    EXPECT_EQ(batch->find("targets"), nullptr);
    for (const int32_t label : labels.values<int32_t>()) {
      EXPECT_TRUE((label >= 0 && label < 3) || label == kIgnoredLabel);
      ignored += label == kIgnoredLabel;
      ++all;
    }
  }
  EXPECT_EQ(all, 2 * 5 * 36);
  EXPECT_GT(ignored, 0);
  EXPECT_LT(ignored, all / 2);
  options.augmentation.mixup = 0.2;
  options.resized_crop.reset();
  expect_says(message_of<Error>([&] { MiniBatchQueue(data, {Shape{1, 9, 8}}, options); }), "mixup");
}

}  // namespace
}  // namespace lockstep
