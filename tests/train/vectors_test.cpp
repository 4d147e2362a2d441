// Training on arrays of floats: feature vectors, sequences, volumes, float targets.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::some_digits;
using testing::TemporaryFolder;

// The built-in digits as arrays of their pixels, with names.
DatastorePtr as_arrays(const DatastorePtr& digits, const Shape& shape = {784}) {
  ArrayBlock block{digits->size(), shape, {}};
  ImageLabels labels{.classes = digits->classes()};
  for (int64_t i = 0; i < digits->size(); ++i) {
    for (uint8_t pixel : read_image(*digits, i).pixels) block.values.push_back(pixel);
    labels.labels.push_back(digits->label(i));
  }
  return array_datastore(std::move(block), std::move(labels));
}

Network vector_network(uint64_t seed = 1) {
  Network network{feature_input({.features = 784, .normalization = "z-score"}),
                  fully_connected({.units = 24}),
                  batch_normalization(),
                  relu(),
                  dropout({.probability = 0.1}),
                  fully_connected({.units = 10}),
                  softmax()};
  network.initialize(seed);
  return network;
}

TrainingResult trained(Network network, const TrainingData& data, TrainingOptions options,
                       const TrainingControl& control = {}) {
  return train(network, data, options, control);
}

std::string error_of(const std::function<void()>& call) {
  return lockstep::testing::message_of<Error>(call);
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Vectors, OneDigestForAnyNumberOfThreadsAndAnyCache) {
  const TrainingData data{as_arrays(some_digits(70)), as_arrays(some_digits(33, 500))};
  TrainingOptions options = testing::small_options();
  options.shards.size = 3;  // with three shards the last one nearly always arrives last
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.batch_normalization_statistics = BatchNormalizationStatistics::population;
  options.threads = 1;
  const TrainingResult one = trained(vector_network(), data, options);
  ASSERT_EQ(one.last_iteration, 8);
  for (int threads : {2, 3, 5}) {
    options.threads = threads;
    options.data.cache_mib = threads == 3 ? 0 : 64;
    options.data.loader_threads = threads;
    const TrainingResult many = trained(vector_network(), data, options);
    EXPECT_EQ(many.digest, one.digest) << threads;
    EXPECT_EQ(many.network_digest, one.network_digest) << threads;
    EXPECT_EQ(many.iterations.back().chain, one.iterations.back().chain) << threads;
    EXPECT_EQ(many.validations.back().loss, one.validations.back().loss) << threads;
  }
}

// Mini-batches find labels and targets by these names, after the inputs.
TEST(Vectors, AnInputMayBeCalledLabelsOrTargets) {
  const auto trained = [](const std::string& name, const char* loss) {
    Network network;
    network.add(feature_input({.features = 3, .normalization = "none"}), name);
    network.add(fully_connected({.units = 3}), "dense");
    if (loss == std::string("cross_entropy")) network.add(softmax(), "probabilities");
    network.set_loss(loss);
    network.initialize(1);
    ArrayBlock inputs{.count = 60, .shape = {3}}, targets = inputs;
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < 180; ++i) {
      inputs.values.push_back(static_cast<float>(i * 7 % 11) / 4);
      targets.values.push_back(static_cast<float>(i * 5 % 13) / 9);
    }
    for (int64_t i = 0; i < 60; ++i) labels.push_back(i % 3);
    TrainingData data{.training = array_datastore(inputs, {.labels = labels})};
    if (loss == std::string("mean_squared_error")) {
      data.training = array_datastore(inputs);
      data.training_targets = array_datastore(targets);
    }
    return train(network, data, testing::small_options()).digest;
  };
  for (const char* const loss : {"cross_entropy", "mean_squared_error"}) {
    const Digest usual = trained("data", loss);
    EXPECT_EQ(trained("labels", loss), usual) << loss;
    EXPECT_EQ(trained("targets", loss), usual) << loss;
  }
}

TEST(Vectors, AStoppedTrainingContinuesWithTheSameBits) {
  const TrainingData data{as_arrays(some_digits(60))};
  const TrainingOptions options = testing::small_options();
  const TrainingResult whole = trained(vector_network(), data, options);
  TemporaryFolder folder;
  TrainingControl control{.checkpoint_folder = folder.path, .stop_after = 4};
  EXPECT_TRUE(trained(vector_network(), data, options, control).stopped);
  control.stop_after = 0;
  control.resume = true;
  const TrainingResult rest = trained(vector_network(9), data, options, control);
  EXPECT_EQ(rest.digest, whole.digest);
  EXPECT_EQ(rest.iterations.back().chain, whole.iterations.back().chain);
  EXPECT_EQ(rest.network_digest, whole.network_digest);

  // Contents are part of the comparison.
  const DatastorePtr other = as_arrays(some_digits(60, 1));
  expect_says(error_of([&] { trained(vector_network(), {other}, options, control); }), "data");
}

TEST(Vectors, AScoreDoesNotDependOnItsNeighbors) {
  Network network = vector_network();
  const DatastorePtr all = as_arrays(some_digits(100));
  train(network, {all}, testing::small_options());
  const Tensor scores = predict(network, all);
  const auto whole = scores.to_vector();
  const auto alone = predict(network, subset(all, {77})).to_vector();
  for (size_t c = 0; c < 10; ++c) EXPECT_EQ(alone[c], whole[770 + c]);
  EXPECT_EQ(evaluate(network, all, {.threads = 1}).loss,
            evaluate(network, all, {.threads = 3}).loss);
}

TEST(Vectors, ImagesAsFloatsHaveTheBitsOfImages) {
  const DatastorePtr digits = some_digits(60);
  const TrainingOptions options = testing::small_options();
  Network images = testing::small_classifier(), floats = testing::small_classifier();
  const TrainingResult expected = train(images, {digits, digits}, options);
  const DatastorePtr arrays = as_arrays(digits, {1, 28, 28});
  const TrainingResult made = train(floats, {arrays, arrays}, options);
  EXPECT_EQ(made.digest, expected.digest);
  EXPECT_EQ(made.validations.back().loss, expected.validations.back().loss);
}

TEST(Vectors, DigitsAsVectorsReachTheAccuracyOfDigitsAsImages) {
  const auto parts = split_each_label(builtin_digits(), {0.15, 0.05}, 0);
  const auto accuracy = [&](LayerPtr input, const DatastorePtr& data, const DatastorePtr& test) {
    Network network;
    network.add(std::move(input));
    network.add(fully_connected({.units = 32}));
    network.add(batch_normalization());
    network.add(relu());
    network.add(fully_connected({.units = 10}));
    network.add(softmax());
    network.initialize(2);
    TrainingOptions options;
    options.mini_batch_size = 50;
    options.max_epochs = 10;
    options.threads = 2;
    train(network, {data}, options);
    return evaluate(network, test).accuracy;
  };
  const double images =
      accuracy(image_input({.height = 28, .width = 28, .channels = 1}), parts[0], parts[1]);
  const double vectors =
      accuracy(feature_input({.features = 784}), as_arrays(parts[0]), as_arrays(parts[1]));
  EXPECT_GE(images, 0.9);
  EXPECT_NEAR(vectors, images, 0.02);
}

TEST(Vectors, NormalizationIsOfTheTrainingSplitAlone) {
  const auto with = [](const char* how) {
    Network network{feature_input({.features = 3, .normalization = how}),
                    fully_connected({.units = 2}), softmax()};
    network.initialize(1);
    const DatastorePtr data = array_datastore(
        ArrayBlock{4, {3}, {1, 10, 7, 2, 20, 7, 3, 30, 7, 6, 20, 7}}, {.labels = {0, 1, 0, 1}});
    const DatastorePtr held =
        array_datastore(ArrayBlock{2, {3}, {50, 60, 70, 80, 90, 0}}, {.labels = {0, 1}});
    TrainingOptions options = testing::small_options();
    options.mini_batch_size = 2;
    train(network, {data, held}, options);
    auto values = network.state_value("feature_input_1.offset").to_vector();
    for (float f : network.state_value("feature_input_1.factor").to_vector()) values.push_back(f);
    return values;
  };
  EXPECT_EQ(with("none"), (std::vector<float>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(with("zero-center"), (std::vector<float>{3, 20, 7, 1, 1, 1}));
  const auto deviation = [](double v) { return static_cast<float>(1 / std::sqrt(v)); };
  EXPECT_EQ(with("z-score"), (std::vector<float>{3, 20, 7, deviation(3.5), deviation(50), 1}));
  EXPECT_EQ(with("rescale-zero-one"), (std::vector<float>{1, 10, 7, static_cast<float>(1 / 5.0),
                                                          static_cast<float>(1 / 20.0), 1}));
}

TEST(Vectors, SequencesAndImagesWithDepthAreTrained) {
  const auto expect_trains = [](Network network, const Shape& shape) {
    network.initialize(3);
    // Class 1 rises along the last axis.
    ArrayBlock block{60, shape, {}};
    ImageLabels labels{.classes = {"flat", "rising"}};
    for (int64_t i = 0; i < block.count; ++i) {
      for (int64_t k = 0; k < shape.elements(); ++k) {
        const auto noise = static_cast<float>((i * 31 + k * 17) % 11) / 22;
        const auto rise = static_cast<float>(k % shape[-1]) / 4;
        block.values.push_back(noise + (i % 2 == 1 ? rise : 0.5f));
      }
      labels.labels.push_back(i % 2);
    }
    const DatastorePtr data = array_datastore(block, labels);
    TrainingOptions options = testing::small_options();
    options.max_epochs = 30;
    train(network, {data}, options);
    EXPECT_GE(evaluate(network, data).accuracy, 0.95);
  };
  expect_trains(Network{sequence_input({.channels = 2, .length = 8}),
                        convolution1d({.filters = 4, .kernel = 3}), relu(),
                        fully_connected({.units = 2}), softmax()},
                {2, 8});
  expect_trains(Network{image3d_input({.depth = 3, .height = 4, .width = 5, .channels = 1}),
                        convolution3d({.filters = 4, .kernel = {2, 2, 2}}), relu(),
                        fully_connected({.units = 2}), softmax()},
                {1, 3, 4, 5});
  // An image of floats with more channels than image files have.
  expect_trains(Network{image_input({.height = 4, .width = 5, .channels = 4}),
                        convolution2d({.filters = 4, .kernel = {2, 2}}), relu(),
                        fully_connected({.units = 2}), softmax()},
                {4, 4, 5});
}

// y = 3 x0 - 2 x1 + 1, and the difference.
TrainingData regression() {
  ArrayBlock inputs{64, {2}, {}}, targets{64, {2}, {}};
  for (int64_t i = 0; i < 64; ++i) {
    const auto a = static_cast<float>(i % 8) / 8, b = static_cast<float>(i / 8) / 8;
    inputs.values.insert(inputs.values.end(), {a, b});
    targets.values.insert(targets.values.end(), {3 * a - 2 * b + 1, a - b});
  }
  TrainingData data;
  data.training = data.validation = array_datastore(inputs);
  data.training_targets = data.validation_targets = array_datastore(targets);
  return data;
}

TEST(Vectors, FloatTargetsAreLearnedByMeanSquaredError) {
  TrainingOptions options = testing::small_options();
  options.mini_batch_size = 16;
  options.max_epochs = 60;
  options.solver.l2 = 0;
  options.solver.initial_learning_rate = 0.1;
  options.validation.metrics = {"rmse"};
  const auto run = [&](int64_t threads) {
    Network network{feature_input({.features = 2}), fully_connected({.units = 2})};
    network.set_loss("mean_squared_error");
    network.initialize(1);
    options.threads = threads;
    const TrainingResult result = train(network, regression(), options);
    const auto made =
        predict(network, array_datastore(ArrayBlock{1, {2}, {0.5f, 0.25f}})).to_vector();
    EXPECT_NEAR(made[0], 2.0, 1e-2);
    EXPECT_NEAR(made[1], 0.25, 1e-2);
    EXPECT_LT(result.validations.back().loss, 1e-4);
    EXPECT_TRUE(std::isnan(result.validations.back().accuracy));
    return result.digest;
  };
  EXPECT_EQ(run(1), run(3));
}

TEST(Vectors, ImagesMayHaveFloatTargetsThatAugmentationLeavesAlone) {
  const DatastorePtr digits = some_digits(60);
  ArrayBlock values{60, {1}, {}};
  for (int64_t i = 0; i < 60; ++i) values.values.push_back(static_cast<float>(digits->label(i)));
  Network network{image_input({.height = 20, .width = 20, .channels = 1}),
                  fully_connected({.units = 1})};
  network.set_loss("mean_squared_error");
  network.initialize(1);
  TrainingData data{digits};
  data.training_targets = array_datastore(values);
  data.augmentation.translate_x = {-2, 2};
  data.random_crop = true;
  TrainingOptions options = testing::small_options();
  options.solver.initial_learning_rate = 1e-7;
  EXPECT_EQ(train(network, data, options).last_iteration, 6);
}

TEST(Vectors, WhatDoesNotFitIsRefused) {
  const TrainingOptions options = testing::small_options();
  const DatastorePtr vectors = as_arrays(some_digits(60));
  Network network = vector_network();
  const auto refusal = [&](const TrainingData& data) {
    return error_of([&] { train(network, data, options); });
  };
  expect_says(refusal({some_digits(60)}), "one image input, but its inputs are 784");
  expect_says(refusal({as_arrays(some_digits(60), {28, 28})}), "one input of 28x28 for");
  TrainingData data{vectors};
  data.augmentation.reflect_x = true;
  expect_says(refusal(data), "[augmentation] reflect_x is for images");
  data = {vectors};
  data.noise.salt_and_pepper = 0.1;
  expect_says(refusal(data), "[noise] is for images");
  expect_says(error_of([&] { evaluate(network, vectors, {.noise = data.noise}); }),
              "[noise] is for images");
  data = {vectors};
  data.random_crop = true;
  expect_says(refusal(data), "[random crop] is for images");
  expect_says(refusal({vectors, some_digits(10)}), "one image input, but");
  data = regression();
  data.training_targets = data.training;
  data.validation_targets = some_digits(64);
  Network mixed{feature_input({.features = 2}), fully_connected({.units = 2})};
  mixed.set_loss("mean_squared_error");
  mixed.initialize(1);
  expect_says(error_of([&] { train(mixed, data, options); }), "output of 2 is not an image");
  Network other{feature_input({.features = 2}), fully_connected({.units = 3})};
  other.set_loss("mean_squared_error");
  other.initialize(1);
  expect_says(error_of([&] { train(other, data, options); }),
              "are of 2, but the network's output is of 3");
}

}  // namespace
}  // namespace lockstep
