// What an iteration on a device requests from it: launches, copies and waits. The networks are
// those of examples/jobs; their mini-batches are counted and not computed.
#include <gtest/gtest.h>

#include <iostream>

#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/input/targets.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::DeviceCounts;
using devicetest::FakeDevice;

constexpr size_t kMemory = size_t{16} << 30;  // addresses; nothing is stored there

// cifar10_s1.toml (depth 4, width 32) and cifar10_s3.toml (depth 1, width 16).
Network cifar_network(int depth, int64_t width) {
  Network network;
  network.add(
      image_input({.height = 32, .width = 32, .channels = 3, .normalization = "zero-center"}));
  for (int stage = 0; stage < 3; ++stage) {
    for (int i = 0; i < depth; ++i) {
      network.add(
          convolution2d({.filters = width << stage, .kernel = {3, 3}, .padding = same_padding}));
      network.add(batch_normalization());
      network.add(relu());
    }
    if (stage < 2) network.add(max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}));
  }
  network.add(average_pooling2d({.pool = {8, 8}}));
  network.add(fully_connected({.units = 10}));
  network.add(softmax());
  network.initialize(1);
  return network;
}

DatastorePtr some_images(int64_t n) {
  ImageBlock images{n, 32, 32, 3, {}};
  images.pixels.resize(static_cast<size_t>(n * 32 * 32 * 3));
  for (size_t i = 0; i < images.pixels.size(); ++i) {
    images.pixels[i] = static_cast<uint8_t>((i * 37 + i / 3072) % 251);
  }
  ImageLabels labels;
  for (int64_t i = 0; i < n; ++i) labels.labels.push_back(i % 10);
  for (int c = 0; c < 10; ++c) labels.classes.push_back(std::to_string(c));
  return array_datastore(images, labels);
}

// The counts of one iteration while the next one is under way.
DeviceCounts of_an_iteration(const FakeDevice& fake, Network network, int64_t mini_batch) {
  constexpr int64_t iterations = 12;
  TrainingData data{.training = some_images(mini_batch)};
  data.augmentation.reflect_x = true;
  data.augmentation.translate_x = data.augmentation.translate_y = {-4, 4};
  TrainingOptions options;
  options.device = "cuda:0";
  options.mini_batch_size = mini_batch;
  options.max_epochs = iterations;
  options.validation.frequency = 0;
  options.shards.check_frequency = 0;
  options.shards.compare_first = false;  // the stand-in computes nothing
  std::vector<DeviceCounts> after;
  testing::Recorder recorder;
  recorder.on_iteration = [&](const IterationRecord&) { after.push_back(fake.counts()); };
  TrainingControl control;
  control.observers = {&recorder};
  train(network, data, options, control);
  EXPECT_EQ(after.size(), static_cast<size_t>(iterations));
  return after[8] - after[7];
}

// One recording, one copy to the host, and one wait: for the results of the iteration before, while
// this one is under way. The kernel beside the recording keeps the values of the iteration before.
// What the host sends arrives while that one is computed, and is then copied within the device.
void expect_one_recording(const DeviceCounts& counts) {
  EXPECT_EQ(counts.recordings, 1);
  EXPECT_EQ(counts.to_host, 1);
  EXPECT_EQ(counts.to_device, 1);
  EXPECT_EQ(counts.within, 1);
  EXPECT_EQ(counts.kernels, 1);
  EXPECT_EQ(counts.waits, 1);
  EXPECT_EQ(counts.drains, 0);
}

TEST(DeviceCounts, S1) {
  const FakeDevice fake(0, {.bytes = kMemory, .computes = false});
  const DeviceCounts counts = of_an_iteration(fake, cifar_network(4, 32), 2048);
  std::cout << "S1 at 2,048: " << counts.to_string() << "\n";
  expect_one_recording(counts);
  EXPECT_EQ(counts.recorded_copies, 8) << "the gradients of each shard";
}

TEST(DeviceCounts, S3) {
  const FakeDevice fake(0, {.bytes = kMemory, .computes = false});
  const DeviceCounts counts = of_an_iteration(fake, cifar_network(1, 16), 128);
  std::cout << "S3 at 128: " << counts.to_string() << "\n";
  expect_one_recording(counts);
  EXPECT_EQ(counts.recorded_copies, 1);
}

// The counts of a validation with 5,000 images, the second one of a training.
DeviceCounts of_a_validation(const FakeDevice& fake, Network network) {
  network.to(fake);
  ThreadPool pool(1);
  Evaluator evaluator(
      network, Evaluator::Data{.images = cache_for(network, some_images(5000), 1 << 26)}, pool);
  evaluator.run();
  const DeviceCounts before = fake.counts();
  evaluator.run();
  return fake.counts() - before;
}

// Ten batches of 512. The host waits for each batch while the device has others.
TEST(DeviceCounts, Validation) {
  const FakeDevice fake(0, {.bytes = kMemory, .computes = false});
  for (const bool s1 : {false, true}) {
    const DeviceCounts counts =
        of_a_validation(fake, s1 ? cifar_network(4, 32) : cifar_network(1, 16));
    std::cout << "validation of " << (s1 ? "S1: " : "S3: ") << counts.to_string() << "\n";
    EXPECT_EQ(counts.recordings, 10);
    EXPECT_EQ(counts.to_host, 10);
    EXPECT_EQ(counts.to_device, 10);
    EXPECT_EQ(counts.within, 0);
    EXPECT_EQ(counts.waits, 10);
    EXPECT_EQ(counts.kernels, s1 ? 13 : 4) << "packed copies of parameters";
  }
}

}  // namespace
}  // namespace lockstep
