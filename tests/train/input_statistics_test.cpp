// Inputs that are to be normalized need statistics: a loop that does not set them is told.
#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::some_digits;

Network classifier(const char* normalization = "zero-center") {
  Network network{
      image_input({.height = 28, .width = 28, .channels = 1, .normalization = normalization}),
      fully_connected({.units = 10}), softmax()};
  network.initialize(1);
  return network;
}

Tensor pixels(int64_t n) {
  return Tensor::from(std::vector<uint8_t>(static_cast<size_t>(n * 784), 9), {n, 1, 28, 28});
}

// All that runs a network.
std::vector<std::pair<const char*, std::function<void()>>> uses_of(Network& network) {
  const Tensor labels = Tensor::from(std::vector<int32_t>{1, 2}, {2});
  return {
      {"forward", [&] { network.forward({pixels(2)}); }},
      {"forward, training", [&] { network.forward({pixels(2)}, {.training = true}); }},
      {"predict", [&] { network.predict(pixels(2)); }},
      {"predict, data", [&] { predict(network, some_digits(3), {.threads = 1}); }},
      {"evaluate", [&] { evaluate(network, some_digits(3), {.threads = 1}); }},
      {"value_and_gradient",
       [&, labels] {
         value_and_gradient(
             [&] { return ops::mean(ops::cross_entropy(network.forward({pixels(2)}), labels)); },
             network);
       }},
      {"sharded_value_and_gradient", [&, labels] {
         ShardGroup group(network, {.threads = 1});
         sharded_value_and_gradient(
             [](Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); },
             {pixels(2), labels}, group, 1);
       }}};
}

void expect_told(Network& network) {
  for (const auto& [what, use] : uses_of(network)) {
    const std::string message = testing::message_of<InvalidArgument>(use);
    EXPECT_EQ(message,
              "[network] the input `image_input_1` has normalization = \"zero-center\", but no "
              "statistics of the training data")
        << what;
    try {
      use();
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.hint().find("set_input_normalization("), std::string::npos) << what;
    }
  }
}

void expect_used(Network& network) {
  for (const auto& [what, use] : uses_of(network)) EXPECT_NO_THROW(use()) << what;
}

void set(Network& network) {
  ThreadPool pool(1);
  ExampleCache images(some_digits(20), 28, 28, 1, size_t{1} << 20);
  set_input_normalization(network, images.fill(pool).channels());
}

TEST(InputStatistics, AreAskedForByAllThatRunsANetwork) {
  Network network = classifier();
  expect_told(network);
  set(network);
  expect_used(network);
  network.initialize(2);
  expect_told(network);
}

TEST(InputStatistics, AreNotAskedForWithoutNormalization) {
  Network network = classifier("none");
  expect_used(network);
}

// Mean 0 and deviation 1 are statistics, too.
TEST(InputStatistics, MayBeThoseOfStandardizedData) {
  for (const char* how : {"zero-center", "z-score", "rescale-zero-one"}) {
    Network network{feature_input({.features = 1, .normalization = how})};
    network.initialize(1);
    set_input_normalization(network, std::vector<ChannelSummary>{{-0.0, 1, 0, 1}});
    EXPECT_EQ(network.predict(Tensor::from(std::vector<float>{3}, {1, 1})).to_vector(),
              std::vector<float>{3})
        << how;
  }
}

TEST(InputStatistics, AreMissingInCopiesAndFilesToo) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path + "/model.safetensors";
  Network network = classifier();
  Network copy = network.clone();
  expect_told(copy);
  save_model(local_files(), path, network, {});
  Network read = load_model(local_files(), path).network;
  expect_told(read);
  set(network);
  save_model(local_files(), path, network, {});
  read = load_model(local_files(), path).network;
  expect_used(read);
}

// Files of earlier versions have offset 0 and factor 1, with which their loops trained.
TEST(InputStatistics, OfEarlierFilesAreTaken) {
  Network network = classifier();
  const Tensor offset = network.state_value("image_input_1.offset");
  offset.copy_from(Tensor::zeros(offset.shape(), DType::f32, {}));
  expect_used(network);
}

TEST(InputStatistics, ComeWithATraining) {
  Network network = classifier();
  TrainingOptions options = testing::small_options();
  options.max_epochs = 1;
  options.solver.initial_learning_rate = 1e-5;
  train(network, {some_digits(60), some_digits(20, 100)}, options);
  expect_used(network);
}

TEST(InputStatistics, ComeWithASavedLoop) {
  const testing::TemporaryFolder folder;
  Network network = classifier(), later = classifier();
  set(network);
  SgdmState state, state_later;
  save_loop(local_files(), folder.path + "/loop", {1, 0, 1}, {{network, &state}});
  load_loop(local_files(), folder.path + "/loop", {{later, &state_later}});
  expect_used(later);
}

}  // namespace
}  // namespace lockstep
