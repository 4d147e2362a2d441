// Images in memory, and operations on datastores: transforms, partitions, reading all images.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::MemoryStore;
using testing::message_of;
using testing::patterned;

std::vector<Image> some_images() {
  return {patterned(2, 3, 1, 1), patterned(4, 1, 3, 2), patterned(1, 1, 1, 3)};
}

std::string refusal(std::vector<Image> images, ImageLabels labels) {
  return message_of<InvalidArgument>([&] { array_datastore(std::move(images), labels); });
}

TEST(ArrayDatastore, HoldsImagesOfAnySizeWithLabels) {
  const std::vector<Image> images = some_images();
  const DatastorePtr store =
      array_datastore(images, {.labels = {1, 0, 1}, .classes = {"zebra", "ant"}});
  ASSERT_EQ(store->size(), 3);
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"zebra", "ant"}));  // as numbered
  EXPECT_EQ(count_each_label(*store), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(store->describe(), "3 images in memory");
  for (int64_t i = 0; i < 3; ++i) {
    const Digest content = store->read(i).content;
    EXPECT_EQ(read_image(*store, i), images[static_cast<size_t>(i)]);
    EXPECT_EQ(content, store->content_digest(i));
    EXPECT_EQ(content, digest_of_image(images[static_cast<size_t>(i)]));
    EXPECT_EQ(store->name(i), "image " + std::to_string(i));
  }
  EXPECT_THROW(store->read(3), InvalidArgument);
  EXPECT_THROW(store->label(-1), InvalidArgument);
  EXPECT_THROW(store->name(3), InvalidArgument);
}

TEST(ArrayDatastore, LabelsAndNamesMayBeLeftOut) {
  const DatastorePtr unlabeled = array_datastore(some_images());
  EXPECT_EQ(unlabeled->classes(), std::vector<std::string>{""});
  EXPECT_EQ(unlabeled->label(2), 0);
  const DatastorePtr numbered = array_datastore(some_images(), {.labels = {2, 0, 2}});
  EXPECT_EQ(numbered->classes(), (std::vector<std::string>{"0", "1", "2"}));
  const DatastorePtr empty = array_datastore(std::vector<Image>{});
  EXPECT_EQ(empty->size(), 0);
  EXPECT_EQ(count_each_label(*empty), std::vector<int64_t>{0});
  EXPECT_EQ(read_all(*empty), std::vector<Image>{});
}

TEST(ArrayDatastore, ABlockIsCutIntoImages) {
  ImageBlock block{3, 2, 2, 3, {}};
  for (int i = 0; i < 36; ++i) block.pixels.push_back(static_cast<uint8_t>(7 * i));
  const DatastorePtr store = array_datastore(block, {.labels = {0, 1, 0}, .classes = {"a", "b"}});
  for (int64_t i = 0; i < 3; ++i) {
    const auto begin = block.pixels.begin() + 12 * i;
    EXPECT_EQ(read_image(*store, i), (Image{2, 2, 3, {begin, begin + 12}}));
  }
  EXPECT_EQ(array_datastore(ImageBlock{0, 2, 2, 3, {}})->size(), 0);
  EXPECT_THROW(store->read(3), InvalidArgument);
  for (const auto& [count, height, channels] :
       {std::array<int64_t, 3>{2, 2, 3}, {4, 2, 3}, {-3, 2, 3}, {3, 0, 3}, {3, 2, 2}, {3, -2, 3}}) {
    block.count = count;
    block.height = height;
    block.channels = channels;
    EXPECT_THROW(array_datastore(block), InvalidArgument);
  }
}

TEST(ArrayDatastore, WhatDoesNotFitIsNamed) {
  using Names = std::vector<std::string>;
  expect_says(refusal(some_images(), {.labels = {0, 1}}), "2 labels for 3 images");
  expect_says(refusal(some_images(), {{0, 2, 0}, Names{"a", "b"}}), "image 1 has the label 2");
  expect_says(refusal(some_images(), {{0, -1, 0}, Names{"a", "b"}}), "image 1 has the label -1");
  expect_says(refusal(some_images(), {.labels = {0, -1, 0}}), "image 1 has the label -1");
  expect_says(refusal(some_images(), {.labels = {0, 1 << 30, 0}}), "name the classes");
  expect_says(refusal(some_images(), {{0, 1, 0}, Names{"a", "a"}}), "the same name");
  expect_says(refusal(some_images(), {{}, Names{"a", "b"}}), "no labels");
  expect_says(refusal({Image{}}, {}), "image 0 of 0 x 0 x 0");
  expect_says(refusal({patterned(1, 1, 1, 1), Image{2, 2, 1, {1, 2}}}, {}),
              "image 1 has 2 bytes of pixels, not 4");
}

Image inverted(Image image) {
  for (uint8_t& v : image.pixels) v = static_cast<uint8_t>(255 - v);
  return image;
}

TEST(Transform, ChangesImagesAndTheirDigestsButNothingElse) {
  const auto store = std::make_shared<MemoryStore>(7, 3, 2, 1);
  const DatastorePtr changed = transform(store, inverted, "inverted");
  EXPECT_EQ(changed->size(), 7);
  EXPECT_EQ(changed->label(4), store->label(4));
  EXPECT_EQ(changed->name(4), store->name(4));
  EXPECT_EQ(changed->describe(), "memory, transformed by inverted");
  const Digest content = changed->read(4).content;
  EXPECT_EQ(read_image(*changed, 4), inverted(store->images[4]));
  EXPECT_EQ(content, digest_of_image(inverted(store->images[4])));
  EXPECT_EQ(changed->content_digest(4), content);
  EXPECT_EQ(read_image(*transform(changed, inverted), 2), store->images[2]);
  ThreadPool pool(2);
  const DatastorePtr same = transform(store, [](Image image) { return image; });
  EXPECT_NE(listing_digest(*changed, pool), listing_digest(*same, pool));
  // Sizes may change, and are checked.
  const DatastorePtr flat = transform(store, [](Image image) {
    std::swap(image.height, image.width);
    return image;
  });
  EXPECT_EQ(read_image(*flat, 0).width, 3);
  EXPECT_NE(flat->content_digest(0), same->content_digest(0));
}

TEST(Transform, FailuresNameTheObservationAndTheFunction) {
  const auto store = std::make_shared<MemoryStore>(3, 2, 2, 1);
  const auto says = [&](const std::function<Image(Image)>& function, const std::string& part) {
    const std::string message =
        message_of<DataError>([&] { transform(store, function, "f")->read(1); });
    expect_says(message, "[transform] f did not return a valid image for image 1 (memory)");
    expect_says(message, part);
  };
  says([](Image) -> Image { throw std::runtime_error("out of ink"); }, "out of ink");
  says([](Image) { return Image{}; }, "0 x 0 x 0");
  says([](Image) { return Image{2, 2, 2, std::vector<uint8_t>(8)}; }, "2 x 2 x 2");
  says([](Image) { return Image{2, 2, 1, std::vector<uint8_t>(5)}; }, "5 bytes");
  EXPECT_THROW(transform(store, nullptr), InvalidArgument);
  EXPECT_THROW(transform(nullptr, inverted), InvalidArgument);
}

TEST(Partition, PartsAreContiguousBalancedAndComplete) {
  const auto store = std::make_shared<MemoryStore>(11, 1, 1, 1);
  for (const int64_t parts : {1, 2, 3, 4, 11, 12, 40}) {
    int64_t next = 0, longest = 0, shortest = 11;
    for (int64_t p = 0; p < parts; ++p) {
      const DatastorePtr part = partition(store, parts, p);
      for (int64_t i = 0; i < part->size(); ++i) {
        EXPECT_EQ(part->name(i), "image " + std::to_string(next++));
      }
      EXPECT_LE(part->size(), p == 0 ? 11 : longest);  // the longer ones come first
      longest = std::max(longest, part->size());
      shortest = std::min(shortest, part->size());
    }
    EXPECT_EQ(next, 11);
    EXPECT_LE(longest - shortest, 1);
  }
  EXPECT_THROW(partition(store, 0, 0), InvalidArgument);
  EXPECT_THROW(partition(store, 3, 3), InvalidArgument);
  EXPECT_THROW(partition(store, 3, -1), InvalidArgument);
  EXPECT_THROW(partition(nullptr, 3, 0), InvalidArgument);
}

TEST(ReadAll, GivesEveryImageInOrderByAnyNumberOfThreads) {
  const auto store = std::make_shared<MemoryStore>(23, 3, 2, 1);
  EXPECT_EQ(read_all(*store), store->images);
  EXPECT_EQ(read_all(*store, 3), store->images);
  store->on_read = [](int64_t i) {
    if (i == 4) throw DataError("image 4 is damaged");
  };
  EXPECT_THROW(read_all(*store, 2), DataError);
}

}  // namespace
}  // namespace lockstep
