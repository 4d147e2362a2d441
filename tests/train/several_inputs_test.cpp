// Networks with several inputs: examples of combined datastores, trained by train().
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/same_history.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

// For each digit of the store: features that tell some of its class.
DatastorePtr features_of(const DatastorePtr& digits, float offset = 0) {
  ArrayBlock block{digits->size(), {5}, {}};
  ImageLabels labels{.classes = digits->classes()};
  for (int64_t i = 0; i < digits->size(); ++i) {
    const int64_t label = digits->label(i);
    for (int64_t k = 0; k < 5; ++k) {
      block.values.push_back(offset + static_cast<float>((label * (k + 3) + i * k) % 11) / 3);
    }
    labels.labels.push_back(label);
  }
  return array_datastore(std::move(block), std::move(labels));
}

DatastorePtr both(const DatastorePtr& digits) { return combine({digits, features_of(digits)}); }

// Convolutions on the image, joined with the features.
Network two_inputs(uint64_t seed = 1) {
  Network network;
  network.add(image_input({.height = 28, .width = 28, .channels = 1}), "image");
  network.add(convolution2d({.filters = 6, .kernel = {5, 5}, .stride = {3, 3}}));
  network.add(batch_normalization());
  network.add(relu());
  network.add(fully_connected({.units = 8}), "seen");
  network.add(feature_input({.features = 5, .normalization = "z-score"}), "features");
  network.add(fully_connected({.units = 8}), "known");
  network.add(concatenation(), "joined", {"seen", "known"});
  network.add(dropout({.probability = 0.1}));
  network.add(fully_connected({.units = 10}));
  network.add(softmax());
  network.initialize(seed);
  return network;
}

TrainingProblem problem() {
  TrainingData data{.training = both(some_digits(70)), .validation = both(some_digits(33, 500))};
  data.augmentation.reflect_x = true;
  data.augmentation.translate_x = {-2, 2};
  data.noise.salt_and_pepper = 0.05;
  return {two_inputs(), data};
}

TrainingOptions options_of(int64_t threads) {
  TrainingOptions options = small_options();
  options.shards.size = 3;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.batch_normalization_statistics = BatchNormalizationStatistics::population;
  options.validation.metrics = {"f1"};
  options.threads = threads;
  return options;
}

TrainingResult run_inputs(const TrainingOptions& options, const TrainingControl& control = {}) {
  TrainingProblem p = problem();
  return train(p.network, p.data, options, control);
}

const TrainingResult& one_thread() {
  static const TrainingResult result = run_inputs(options_of(1));
  return result;
}

std::string error_of(const std::function<void()>& call) { return message_of<Error>(call); }

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(SeveralInputs, OneDigestForAnyNumberOfThreadsAndAnyCache) {
  const TrainingResult& one = one_thread();
  ASSERT_EQ(one.last_iteration, 8);
  ASSERT_EQ(one.validations.size(), 2u);
  for (const int64_t threads : {2, 5}) {
    TrainingOptions options = options_of(threads);
    options.data.cache_mib = threads == 5 ? 0 : 64;
    options.data.loader_threads = threads;
    const TrainingResult many = run_inputs(options);
    testing::expect_same_history(many, one);
    EXPECT_EQ(many.network_digest, one.network_digest) << threads;
  }
}

TEST(SeveralInputs, OneDigestForWorkers) {
  TrainingOptions options = options_of(1);
  options.workers.count = 2;
  const auto call = make_call<&problem>();
  TrainingProblem p = call();
  const TrainingResult result = train(call, p.network, p.data, options);
  ASSERT_EQ(result.workers.size(), 2u);
  for (const WorkerSummary& worker : result.workers) EXPECT_GT(worker.shards, 0);
  testing::expect_same_history(result, one_thread());
  EXPECT_EQ(result.network_digest, one_thread().network_digest);
}

TEST(SeveralInputs, ADeviceComputesWhatThreadsCompute) {
  const devicetest::FakeDevice fake;
  TrainingOptions options = options_of(1);
  options.batch_normalization_statistics = BatchNormalizationStatistics::moving;
  const auto with = [&](const std::string& device, bool augmented) {
    TrainingProblem p = problem();
    p.data.noise = {};
    if (!augmented) p.data.augmentation = {};
    options.device = device;
    return train(p.network, p.data, options);
  };
  for (const bool augmented : {true, false}) {
    const TrainingResult expected = with("cpu", augmented), made = with("cuda:0", augmented);
    EXPECT_EQ(made.digest, expected.digest);
    EXPECT_EQ(made.iterations.back().loss, expected.iterations.back().loss);
    EXPECT_EQ(made.validations.back().loss, expected.validations.back().loss);
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(SeveralInputs, BothInputsCount) {
  const auto result = [](const TrainingData& data) {
    Network network = two_inputs();
    return train(network, data, small_options()).digest;
  };
  const DatastorePtr digits = some_digits(60);
  const Digest expected = result({both(digits)});
  EXPECT_NE(result({combine({digits, features_of(digits, 1)})}), expected)
      << "other features are normalized alike, but are another receipt";
  EXPECT_NE(result({combine({some_digits(60, 100), features_of(digits)})}), expected);
}

TEST(SeveralInputs, AStoppedTrainingContinuesWithTheSameBits) {
  const TrainingOptions options = options_of(2);
  TemporaryFolder folder;
  TrainingControl control{.checkpoint_folder = folder.path, .stop_after = 5};
  EXPECT_TRUE(run_inputs(options, control).stopped);
  control.stop_after = 0;
  control.resume = true;
  const TrainingResult rest = run_inputs(options, control);
  EXPECT_EQ(rest.digest, one_thread().digest);
  EXPECT_EQ(rest.iterations.back().chain, one_thread().iterations.back().chain);

  // The contents of every input are part of the comparison.
  TrainingProblem other = problem();
  const DatastorePtr digits = some_digits(70);
  other.data.training = combine({digits, features_of(digits, 0.5f)});
  expect_says(error_of([&] { train(other.network, other.data, options, control); }), "data");
}

TEST(SeveralInputs, InputsMayBeGivenByName) {
  const DatastorePtr digits = some_digits(60), features = features_of(digits);
  const auto loss = [](const DatastorePtr& data) {
    Network network = two_inputs();
    return train(network, {data}, small_options()).iterations.back().loss;
  };
  const double expected = loss(combine({digits, features}));
  EXPECT_EQ(loss(combine({digits, features}, {"image", "features"})), expected);
  EXPECT_EQ(loss(combine({features, digits}, {"features", "image"})), expected);
}

TEST(SeveralInputs, WhatDoesNotFitIsRefusedByTheNameOfTheInput) {
  const DatastorePtr digits = some_digits(60), features = features_of(digits);
  const DatastorePtr wide = array_datastore(ArrayBlock{60, {6}, std::vector<float>(360)});
  const auto refusal = [](const TrainingData& data) {
    Network network = two_inputs();
    return error_of([&] { train(network, data, small_options()); });
  };
  expect_says(refusal({digits}), "one image input, but its inputs are 1x28x28, 5");
  expect_says(refusal({combine({digits, wide})}),
              "the network's input `features` is of 5, but input 2 of the data");
  expect_says(refusal({combine({digits, wide})}), "has arrays of 6");
  expect_says(refusal({combine({features, digits})}), "input `image` is of 1x28x28, but input 1");
  expect_says(refusal({combine({digits, features, features})}),
              "the network has 2 inputs (`image` of 1x28x28, `features` of 5), but the examples");
  expect_says(refusal({combine({digits, features}, {"image", "feature"})}),
              "has the input `feature`, but the network's inputs are `image`");
  // Sizes of images are known when they are read.
  const DatastorePtr small = resized(digits, 20, 20);
  expect_says(refusal({combine({small, features})}), "has the size 20 x 20 x 1, expected 28 x 28");
  expect_says(refusal({both(digits), some_digits(20)}), "one image input, but");
  TrainingData cut{both(digits)};
  cut.random_crop = true;
  Network network = two_inputs();
  EXPECT_EQ(train(network, cut, small_options()).last_iteration, 6);
}

TEST(SeveralInputs, EvaluationAndPredictionDoNotDependOnNeighbors) {
  Network network = two_inputs();
  const DatastorePtr data = both(some_digits(100));
  train(network, {data}, small_options());
  const auto whole = predict(network, data).to_vector();
  const auto alone = predict(network, subset(data, {77})).to_vector();
  ASSERT_EQ(whole.size(), 1000u);
  for (size_t c = 0; c < 10; ++c) EXPECT_EQ(alone[c], whole[770 + c]);
  const Evaluation one = evaluate(network, data, {.threads = 1, .metrics = {"f1"}});
  const Evaluation three = evaluate(network, data, {.threads = 3, .metrics = {"f1"}});
  EXPECT_EQ(one.loss, three.loss);
  EXPECT_EQ(one.metrics[0].value, three.metrics[0].value);
  EXPECT_TRUE(std::isfinite(one.loss));
}

// A loss of the user gets every input, and then the labels.
TEST(SeveralInputs, ALossOfTheUserGetsAllInputs) {
  const auto with = [](int64_t threads) {
    TrainingProblem p = problem();
    p.data.loss = {[](Shard& shard) {
                     const Tensor scores = shard.forward_all({shard[0], shard[1]}, {}).front();
                     return ops::cross_entropy(scores, shard[2]);
                   },
                   "of two inputs"};
    TrainingOptions options = options_of(threads);
    options.batch_normalization_statistics = BatchNormalizationStatistics::moving;
    options.validation.metrics = {};
    return train(p.network, p.data, options);
  };
  const TrainingResult one = with(1), three = with(3);
  EXPECT_EQ(one.digest, three.digest);
  EXPECT_EQ(one.validations.back().loss, three.validations.back().loss);
  EXPECT_NEAR(one.iterations.front().loss, one_thread().iterations.front().loss, 1e-4);
}

// Targets of the examples are those that TrainingData names, except in the identity.
TEST(SeveralInputs, ExamplesMayHaveTargets) {
  const DatastorePtr digits = some_digits(60), small = resized(digits, 14, 14);
  const auto with = [&](const TrainingData& given) {
    TrainingData data = given;
    data.augmentation.reflect_x = true;
    Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                    convolution2d({.filters = 1, .kernel = {2, 2}, .stride = {2, 2}})};
    network.set_loss("mean_squared_error");
    network.initialize(1);
    TrainingOptions options = small_options();
    options.solver.initial_learning_rate = 1e-6;
    options.validation.metrics = {"rmse"};
    TrainingResult result = train(network, data, options);
    EXPECT_TRUE(std::isnan(result.iterations.back().accuracy));
    return result;
  };
  TrainingData separate{.training = digits, .validation = digits};
  separate.training_targets = separate.validation_targets = small;
  const TrainingResult expected = with(separate);
  const DatastorePtr own = with_targets(digits, small);
  const TrainingResult made = with({.training = own, .validation = own});
  EXPECT_EQ(made.digest, expected.digest);
  EXPECT_EQ(made.validations.back().loss, expected.validations.back().loss);
  EXPECT_EQ(made.validations.back().metrics[0].value, expected.validations.back().metrics[0].value);
  EXPECT_NE(made.iterations.back().chain, expected.iterations.back().chain);
  separate.training = own;
  expect_says(error_of([&] { with(separate); }), "have targets, but others");
  expect_says(error_of([&] { with({.training = own, .validation = digits}); }),
              "must both have targets");
}

}  // namespace
}  // namespace lockstep
