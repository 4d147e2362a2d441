// Normalization over one value gives 0, so nothing before it learns: refused before a training.
#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

DatastorePtr vectors(int64_t n) {
  ArrayBlock block{n, {4}, {}};
  ImageLabels labels{.classes = {"a", "b"}};
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < 4; ++k) {
      block.values.push_back(static_cast<float>((i * 7 + k * 3) % 11) - static_cast<float>(i % 2));
    }
    labels.labels.push_back(i % 2);
  }
  return array_datastore(std::move(block), std::move(labels));
}

Network of_vectors(const LayerPtr& normalization) {
  Network network{feature_input({.features = 4, .normalization = "none"}),
                  fully_connected({.units = 6}),
                  normalization,
                  relu(),
                  fully_connected({.units = 2}),
                  softmax()};
  network.initialize(1);
  return network;
}

// Batch normalization of maps of `pooled` x `pooled`.
Network of_images(int64_t pool) {
  Network network{image_input({.height = 4, .width = 4, .channels = 1}),
                  convolution2d({.filters = 3, .kernel = {3, 3}, .padding = same_padding}),
                  max_pooling2d({.pool = {pool, pool}, .stride = {pool, pool}}),
                  batch_normalization(),
                  fully_connected({.units = 3}),
                  softmax()};
  network.initialize(1);
  return network;
}

TrainingOptions options_of(int64_t mini_batch_size, int64_t shard_size,
                           LastMiniBatch last = LastMiniBatch::drop) {
  TrainingOptions options;
  options.mini_batch_size = mini_batch_size;
  options.shards.size = shard_size;
  options.data.last_mini_batch = last;
  options.max_epochs = 1;
  options.threads = 1;
  return options;
}

// The error with its hint, before anything is computed.
std::string refusal(Network network, const DatastorePtr& data, const TrainingOptions& options) {
  testing::Recorder recorder;
  try {
    train(network, {data, nullptr}, options, {.observers = {&recorder}});
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(recorder.starts.empty());
    EXPECT_TRUE(recorder.iterations.empty());
    return std::string(error.what()) + " | " + error.hint();
  }
  return "accepted";
}

TEST(NormalizedAlone, ShardsOfOneObservationAreRefused) {
  const auto trained = [](int64_t n, const TrainingOptions& options) {
    return refusal(of_vectors(batch_normalization()), vectors(n), options);
  };
  const std::string gives_zero =
      "[training] the layer `batch_normalization_1` would normalize single numbers, which gives 0 "
      "whatever they are: ";
  EXPECT_EQ(trained(32, options_of(8, 1)),
            gives_zero +
                "a mini-batch of 8 with shard_size = 1 has a shard of 1 observation | raise "
                "shard_size, or mini_batch_size if it is 1");
  EXPECT_EQ(trained(33, options_of(8, 16, LastMiniBatch::keep)),
            gives_zero +
                "the last mini-batch of 1 with shard_size = 16 has a shard of 1 observation | set "
                "last_mini_batch = \"drop\", or change mini_batch_size or shard_size");
  EXPECT_NE(trained(32, options_of(1, 16)), "accepted");
  // 2, 2 and 1.
  EXPECT_NE(trained(30, options_of(5, 2)), "accepted");
  EXPECT_NE(trained(1, options_of(8, 16, LastMiniBatch::keep)), "accepted");
  EXPECT_EQ(trained(33, options_of(8, 16)), "accepted");
  EXPECT_EQ(trained(32, options_of(8, 2)), "accepted");
  // 9 and 8.
  EXPECT_EQ(trained(17 + 32, options_of(32, 16, LastMiniBatch::keep)), "accepted");
  TrainingOptions by_device = options_of(1, 0);
  EXPECT_NE(trained(4, by_device), "accepted");
}

TEST(NormalizedAlone, ImagesOfOnePixelAreVectors) {
  const DatastorePtr images = std::make_shared<testing::MemoryStore>(8, 4, 4, 1);
  EXPECT_NE(refusal(of_images(4), images, options_of(4, 1)), "accepted");
  EXPECT_EQ(refusal(of_images(2), images, options_of(4, 1)), "accepted");
  EXPECT_EQ(refusal(of_images(4), images, options_of(4, 2)), "accepted");
}

TEST(NormalizedAlone, GroupsOfOneValueAreRefused) {
  const auto trained = [](const LayerPtr& layer) {
    return refusal(of_vectors(layer), vectors(32), options_of(8, 16));
  };
  EXPECT_EQ(trained(instance_normalization()),
            "[training] the layer `instance_normalization_1` normalizes over one value, which "
            "gives 0 whatever the value is | leave it out, or put it where its input has more "
            "channels or more pixels");
  EXPECT_NE(trained(group_normalization({.groups = 6})), "accepted");
  EXPECT_EQ(trained(group_normalization({.groups = 3})), "accepted");
  EXPECT_EQ(trained(layer_normalization()), "accepted");
}

TEST(NormalizedAlone, LoopsAreRefusedWhereTheyTrain) {
  Network network = of_vectors(batch_normalization());
  const Tensor one = Tensor::from(std::vector<float>{1, 2, 3, 4}, {1, 4});
  const Tensor label = Tensor::from(std::vector<int32_t>{1}, {1});
  const std::string said =
      "the layer `batch_normalization_1` would normalize each channel over one";
  const auto refused = [&](const std::function<void()>& call) {
    const std::string message = testing::message_of<InvalidArgument>(call);
    EXPECT_NE(message.find(said), std::string::npos) << message;
  };
  refused([&] { network.forward({one}, {.training = true}); });
  EXPECT_EQ(network.forward({one}).shape(), (Shape{1, 2}));
  EXPECT_EQ(network.predict(one).shape(), (Shape{1, 2}));
  EXPECT_EQ(evaluate(network, vectors(1)).observations, 1);

  const auto loss_of = [](bool training) {
    return [training](Shard& shard) {
      return ops::cross_entropy(shard.forward(shard[0], {.training = training}), shard[1]);
    };
  };
  const Digest before = network_digest(network);
  ShardGroup group(network, {.threads = 2, .shard_size = 2});
  refused([&] { sharded_value_and_gradient(loss_of(true), {one, label}, group, 1); });
  const Tensor three = Tensor::from(std::vector<float>(12, 1.0f), {3, 4});
  const Tensor labels = Tensor::from(std::vector<int32_t>{1, 0, 1}, {3});
  refused([&] { sharded_value_and_gradient(loss_of(true), {three, labels}, group, 1); });
  EXPECT_EQ(network_digest(network), before);
  EXPECT_NO_THROW(sharded_value_and_gradient(loss_of(false), {one, label}, group, 1));
}

}  // namespace
}  // namespace lockstep
