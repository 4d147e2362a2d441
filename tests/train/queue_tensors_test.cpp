// Tensors of a MiniBatchQueue on a device: a stand-in whose copies run when a thread waits.
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::some_digits;

std::shared_ptr<const ExampleCache> examples() {
  const DatastorePtr digits = some_digits(50);
  ArrayBlock block{50, {2}, {}};
  for (int64_t i = 0; i < 100; ++i) block.values.push_back(static_cast<float>(i) / 7);
  return std::make_shared<const ExampleCache>(
      with_targets(combine({digits, array_datastore(block)}), resized(digits, 5, 5)),
      CachedShapes{.inputs = {{1, 28, 28}, {2}}, .target = Shape{1, 5, 5}}, size_t{1} << 20);
}

std::vector<std::vector<float>> values_on(const std::string& device, int prefetch, int threads,
                                          bool helped = false) {
  MiniBatchQueue queue(examples(), {.mini_batch_size = 8,
                                    .drop_last = false,
                                    .seed = 2,
                                    .augmentation = {.reflect_x = true},
                                    .threads = threads,
                                    .prefetch = prefetch,
                                    .helped = helped,
                                    .max_epochs = 2,
                                    .device = device});
  std::vector<std::vector<float>> all;
  std::shared_ptr<const MiniBatch> kept;
  while (queue.has_data()) {
    if (helped) {
      while (queue.help(true)) continue;
    }
    kept = queue.next();
    EXPECT_EQ(kept->tensors.size(), 4u);
    EXPECT_EQ(kept->tensors[0].dtype(), DType::u8);
    EXPECT_EQ(kept->tensors[0].shape(), (Shape{kept->size(), 1, 28, 28}));
    EXPECT_EQ(kept->tensor("targets").shape(), (Shape{kept->size(), 1, 5, 5}));
    EXPECT_EQ(kept->tensor("labels").shape(), (Shape{kept->size()}));
    for (const char* const name : {"input_1", "input_2", "targets"}) {
      const Tensor& tensor = kept->tensor(name);
      const Tensor here = tensor.to(Device{});
      if (tensor.dtype() == DType::f32) {
        all.push_back(here.to_vector());
      } else {
        const uint8_t* const pixels = here.data<uint8_t>();
        all.emplace_back(pixels, pixels + here.shape().elements());
      }
    }
  }
  return all;
}

TEST(QueueTensors, OnADeviceAreThoseOfTheCpu) {
  const auto expected = values_on("cpu", 4, 1);
  ASSERT_EQ(expected.size(), 3u * 14);
  const FakeDevice fake;
  for (const int prefetch : {1, 3, 20}) {
    EXPECT_EQ(values_on("cuda:0", prefetch, prefetch == 3 ? 3 : 1), expected) << prefetch;
  }
  EXPECT_EQ(values_on("cuda:0", 4, 1, true), expected) << "made by the thread that helps";
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// Mini-batches that are not taken are copied and freed; one that is kept outlives its queue.
TEST(QueueTensors, OutliveTheirQueue) {
  const FakeDevice fake;
  std::shared_ptr<const MiniBatch> kept;
  std::vector<float> expected;
  {
    MiniBatchQueue queue(examples(), {.mini_batch_size = 8, .prefetch = 5, .device = "cuda:0"});
    kept = queue.next();
    expected = kept->input(1).tensor().to_vector();
    queue.reset();
    EXPECT_EQ(queue.next()->tensors[1].to_vector(), expected);
  }
  EXPECT_EQ(kept->tensors[1].to_vector(), expected);
  kept.reset();
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// Work on the device needs no waiting for copies.
TEST(QueueTensors, AreReadyForWorkOnTheDevice) {
  const auto sums = [](const std::string& device) {
    MiniBatchQueue queue(examples(), {.mini_batch_size = 10, .threads = 2, .device = device});
    std::vector<Tensor> results;
    while (queue.has_data()) {
      const auto batch = queue.next();
      results.push_back(ops::relu(batch->tensors[1]));  // the mini-batch's memory is reused
    }
    std::vector<std::vector<float>> values;
    for (const Tensor& result : results) values.push_back(result.to_vector());
    return values;
  };
  const auto expected = sums("cpu");
  const FakeDevice fake;
  EXPECT_EQ(sums("cuda:0"), expected);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

}  // namespace
}  // namespace lockstep
