// Augmentations of users, in mini-batches.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/queues.h"

namespace lockstep {
namespace {

using testing::drain;
using testing::expect_equal;
using testing::expect_says;
using testing::message_of;
using testing::patterned;

// Adds a number of the observation's stream to each pixel.
void brighten(AugmentedExample& e) {
  const auto more = static_cast<uint8_t>(e.random.below(0, 256));
  for (Image& image : e.images) {
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel + more);
  }
}

std::vector<MiniBatch> all_of(MiniBatchQueueOptions options, int64_t n = 23,
                              int64_t first_epoch = 0, int64_t first_batch = 0) {
  MiniBatchQueue queue(testing::small_cache(n), std::move(options), first_epoch, first_batch);
  return drain(queue);
}

TEST(OwnAugmentation, DoesNotDependOnThreadsOrTheStart) {
  MiniBatchQueueOptions options = testing::awkward();
  options.own_augmentation = {brighten, "brighten"};
  options.noise.salt_and_pepper = 0.1;
  const std::vector<MiniBatch> one = all_of(options);
  for (const int threads : {2, 5}) {
    options.threads = threads;
    expect_equal(one, all_of(options));
  }
  const std::vector<MiniBatch> rest = all_of(options, 23, 1, 2);
  expect_equal({one.begin() + 7, one.end()}, rest);
  options.own_augmentation = {};
  EXPECT_NE(all_of(options)[0].arrays, one[0].arrays);
}

TEST(OwnAugmentation, SeesTheAugmentedImageAndDrawsAgainInEachEpoch) {
  MiniBatchQueueOptions options = testing::awkward();
  options.shuffle = Shuffle::never;
  options.mini_batch_size = 23;
  const std::vector<MiniBatch> plain = all_of(options);
  options.own_augmentation = {brighten, "brighten"};
  const std::vector<MiniBatch> changed = all_of(options);
  ASSERT_EQ(changed.size(), 3u);
  std::vector<std::vector<int>> added(3);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    const auto before = plain[epoch].arrays[0].values<uint8_t>(),
               after = changed[epoch].arrays[0].values<uint8_t>();
    for (uint64_t i = 0; i < 23; ++i) {
      const RandomStream stream({42, RandomUse::augment, epoch, i, uint64_t{1} << 61});
      const auto more = static_cast<uint8_t>(stream.below(0, 256));
      added[epoch].push_back(more);
      for (size_t p = i * 60; p < (i + 1) * 60; ++p) {
        ASSERT_EQ(after[p], static_cast<uint8_t>(before[p] + more)) << epoch << ", " << i;
      }
    }
  }
  EXPECT_NE(added[0], added[1]);
  EXPECT_NE(added[1], added[2]);
}

TEST(OwnAugmentation, ReceivesChannelsTogetherAndTheLabel) {
  const auto store = std::make_shared<testing::MemoryStore>(6, 5, 4, 3);
  MiniBatchQueueOptions options;
  options.mini_batch_size = 6;
  options.max_epochs = 2;
  std::atomic<int> wrong{0}, calls{0};
  options.own_augmentation = {
      [&](AugmentedExample& e) {
        const bool right = e.images.size() == 1 && !e.target &&
                           e.images[0] == store->images.at(static_cast<size_t>(e.observation)) &&
                           e.label == e.observation % 3 && e.epoch < 2;
        wrong += right ? 0 : 1;
        ++calls;
      },
      "nothing"};
  MiniBatchQueue queue(store, {Shape{3, 5, 4}}, options);
  drain(queue);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(calls, 2 * (6 + 1)) << "one observation of each epoch is tried twice";
}

// Images of one value with labels of pixels that have the same values.
DatastorePtr flat_pairs() {
  std::vector<Image> images, labels;
  for (int i = 0; i < 6; ++i) {
    Image image = patterned(6, 6, 1, static_cast<uint32_t>(i));
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel % 3);
    images.push_back(image);
    labels.push_back(image);
  }
  return with_targets(array_datastore(images),
                      label_images(array_datastore(labels), {.names = {"a", "b", "c"}}));
}

TEST(OwnAugmentation, MovesLabelsOfPixelsAndNoOtherPixels) {
  const auto upside_down = [](AugmentedExample& e) {
    std::ranges::reverse(e.images.at(0).pixels);
    std::ranges::reverse(e.target.value().pixels);
    e.target->pixels[0] = ignored_pixel;
  };
  MiniBatchQueueOptions options;
  options.mini_batch_size = 6;
  options.augmentation.translate_x = {-2, 2};
  options.own_augmentation = {upside_down, "upside down"};
  MiniBatchQueue queue(flat_pairs(), {Shape{1, 6, 6}}, options);
  const auto batch = queue.next();
  const auto pixels = batch->arrays[0].values<uint8_t>();
  const auto labels = (*batch)["labels"].values<int32_t>();
  ASSERT_EQ(pixels.size(), labels.size());
  int64_t differ = 0;
  for (size_t p = 0; p < pixels.size(); ++p) {
    if (labels[p] == kIgnoredLabel) continue;
    EXPECT_NE(p % 36, 0u);
    EXPECT_EQ(labels[p], pixels[p]) << p;
    differ += pixels[p] > 0;
  }
  EXPECT_GT(differ, 50);
  // Targets that are images are floats afterwards.
  options.own_augmentation = {[](AugmentedExample& e) {
                                for (uint8_t& pixel : e.target.value().pixels) pixel = 51;
                              },
                              "gray"};
  options.augmentation = {};
  std::vector<Image> images(6, patterned(6, 6, 1, 3));
  MiniBatchQueue to_images(with_targets(array_datastore(images), array_datastore(images)),
                           {Shape{1, 6, 6}}, options);
  for (const float value : (*to_images.next())["targets"].values<float>()) EXPECT_EQ(value, 0.2f);
}

std::string failure_of(const std::function<void(AugmentedExample&)>& function,
                       const DatastorePtr& data = {}) {
  MiniBatchQueueOptions options;
  options.mini_batch_size = 6;
  options.shuffle = Shuffle::never;
  options.own_augmentation = {function, "mine"};
  const DatastorePtr images = data ? data : std::make_shared<testing::MemoryStore>(6, 5, 4, 1);
  const Shape shape = data ? Shape{1, 6, 6} : Shape{1, 5, 4};
  return message_of<Error>([&] {
    MiniBatchQueue queue(images, {shape}, options);
    queue.next();
  });
}

TEST(OwnAugmentation, ErrorsNameTheFunctionAndTheObservation) {
  const std::string thrown = failure_of([](AugmentedExample& e) {
    if (e.observation == 4) throw std::runtime_error("too dark");
  });
  EXPECT_EQ(thrown,
            "[augmentation] the function `mine` for image 4 (observation 4, epoch 1) failed: too "
            "dark");
  expect_says(failure_of([](AugmentedExample& e) { e.images[0].height = 4; }),
              "image 0 (observation 0, epoch 1) made an image of 4 x 4 x 1 with 20 bytes; expected "
              "5 x 4 x 1");
  expect_says(failure_of([](AugmentedExample& e) { e.images[0].pixels.pop_back(); }), "19 bytes");
  expect_says(failure_of([](AugmentedExample& e) { e.images.clear(); }), "left 0 images");
  expect_says(failure_of([](AugmentedExample& e) { e.target = e.images[0]; }), "made a target");
  expect_says(failure_of([](AugmentedExample& e) { e.target.reset(); }, flat_pairs()), "removed");
  expect_says(failure_of([](AugmentedExample& e) { e.target->pixels[3] = 3; }, flat_pairs()),
              "a pixel of class 3 of a label image with 3 classes");
  std::atomic<int> calls{0};
  expect_says(failure_of([&](AugmentedExample& e) {
                e.images[0].pixels[0] = static_cast<uint8_t>(++calls);
              }),
              "made other pixels when it was called again");
}

TEST(OwnAugmentation, IsForImages) {
  MiniBatchQueueOptions options;
  options.mini_batch_size = 2;
  options.own_augmentation = {brighten, "brighten"};
  const DatastorePtr arrays =
      array_datastore({.count = 4, .shape = {2}, .values = {1, 2, 3, 4, 5, 6, 7, 8}});
  expect_says(message_of<Unsupported>([&] { MiniBatchQueue(arrays, {Shape{2}}, options); }),
              "the function `brighten` is for images");
  options.augment_inputs = false;
  expect_says(message_of<InvalidArgument>([&] { MiniBatchQueue(testing::small_cache(), options); }),
              "own_augmentation needs augmented images");
}

}  // namespace
}  // namespace lockstep
