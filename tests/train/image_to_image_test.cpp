// Image-to-image networks, early stopping, and the choice of the output network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/formats/model.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::Recorder;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

Network autoencoder(int64_t channels = 1) {
  Network network{
      image_input({.height = 28, .width = 28, .channels = 1, .normalization = "rescale-zero-one"}),
      convolution2d({.filters = 7, .kernel = {3, 3}, .padding = same_padding}),
      relu(),
      max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
      transposed_convolution2d(
          {.filters = 5, .kernel = {4, 4}, .stride = {2, 2}, .padding = same_padding}),
      relu(),
      convolution2d({.filters = channels, .kernel = {1, 1}}),
      clipped_relu({.ceiling = 1})};
  network.set_loss("mean_squared_error");
  network.initialize(3);
  const Tensor offset = network.state_value("image_input_1.offset");
  offset.copy_from(Tensor::zeros(offset.shape(), DType::f32));  // pixels as they are
  return network;
}

TrainingData noisy_digits() {
  TrainingData data{.training = some_digits(60), .validation = some_digits(21, 100)};
  data.training_targets = data.training;
  data.validation_targets = data.validation;
  data.noise.salt_and_pepper = 0.1;
  data.augmentation.translate_x = {-2, 2};
  return data;
}

TrainingOptions adam_options(int64_t threads = 2) {
  TrainingOptions options = small_options();
  options.solver.type = "adam";
  options.solver.initial_learning_rate = 0.01;
  options.threads = threads;
  return options;
}

TEST(ImageToImage, LearnsAndHasNoAccuracy) {
  Network network = autoencoder();
  TrainingOptions options = adam_options();
  options.max_epochs = 8;
  Recorder recorder;
  const TrainingResult result = train(network, noisy_digits(), options, {.observers = {&recorder}});
  EXPECT_FALSE(recorder.starts.at(0).classifies);
  EXPECT_TRUE(std::isnan(result.iterations[0].accuracy));
  EXPECT_TRUE(std::isnan(result.validations[0].accuracy));
  EXPECT_LT(result.validations.back().loss, 0.6 * result.validations.front().loss);
}

TEST(ImageToImage, TheLossIsThatOfPlainForward) {
  Network network = autoencoder();
  const DatastorePtr images = some_digits(70);
  const Tensor outputs = predict(network, images, {.threads = 2});
  EXPECT_EQ(outputs.shape(), (Shape{70, 1, 28, 28}));
  const auto made = outputs.to_vector();
  double sum = 0;
  for (int64_t i = 0; i < 70; ++i) {
    const auto pixels = to_planes(read_image(*images, i));
    double squares = 0;
    for (size_t k = 0; k < pixels.size(); ++k) {
      const double d =
          static_cast<double>(made[static_cast<size_t>(i) * pixels.size() + k]) - pixels[k] / 255.0;
      squares += d * d;
    }
    sum += squares / static_cast<double>(pixels.size());
  }
  const Evaluation e = evaluate(network, images, {.targets = images});
  EXPECT_EQ(e.observations, 70);
  EXPECT_NEAR(e.loss, sum / 70, 1e-6 * sum);
  EXPECT_TRUE(std::isnan(e.accuracy));
  // The seed determines the noise of validation, which is drawn once.
  const EvaluationOptions noisy{.threads = 1, .targets = images, .noise = {0.2}, .seed = 4};
  EvaluationOptions threads = noisy, other = noisy;
  threads.threads = 3;
  other.seed = 5;
  EXPECT_NE(evaluate(network, images, noisy).loss, e.loss);
  EXPECT_EQ(evaluate(network, images, threads).loss, evaluate(network, images, noisy).loss);
  EXPECT_NE(evaluate(network, images, other).loss, evaluate(network, images, noisy).loss);
}

TEST(ImageToImage, OneDigestForThreadsStopsAndResumes) {
  const auto run = [](int64_t threads, const TrainingControl& control = {}) {
    Network network = autoencoder();
    TrainingOptions options = adam_options(threads);
    options.shards.size = 3;  // with three shards the last one nearly always arrives last
    return train(network, noisy_digits(), options, control);
  };
  const TrainingResult one = run(1);
  EXPECT_EQ(run(3).digest, one.digest);
  for (int64_t stop : {1, 3, 5}) {
    const TemporaryFolder folder;
    TrainingControl control{.checkpoint_folder = folder.path, .stop_after = stop};
    run(2, control);
    control.stop_after = 0;
    control.resume = true;
    const TrainingResult resumed = run(3, control);
    ASSERT_EQ(resumed.iterations.front().iteration, stop + 1) << "it has begun anew";
    EXPECT_EQ(resumed.digest, one.digest);
    EXPECT_EQ(resumed.iterations.back().chain, one.iterations.back().chain);
    EXPECT_EQ(resumed.validations.back().loss, one.validations.back().loss);
  }
}

TEST(ImageToImage, TargetsMayBeOtherImagesOfAnotherSize) {
  Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                  convolution2d({.filters = 1, .kernel = {3, 3}, .padding = same_padding}),
                  max_pooling2d({.pool = {2, 2}, .stride = {2, 2}})};
  network.set_loss("mean_squared_error");
  network.initialize(1);
  TrainingData data{.training = some_digits(40)};
  data.training_targets = resized(data.training, 14, 14);
  TrainingOptions options = adam_options();
  const TrainingResult result = train(network, data, options);
  EXPECT_LT(result.iterations.back().loss, result.iterations.front().loss);
  data.training_targets = data.training;
  EXPECT_THROW(train(network, data, options), DataError) << "28x28 targets for 14x14";
}

TEST(ImageToImage, WhatDoesNotFitIsRefused) {
  const auto message = [](Network network, const TrainingData& data) {
    return testing::message_of<InvalidArgument>([&] { train(network, data, adam_options()); });
  };
  const auto expect = [&](Network network, const TrainingData& data, const char* words) {
    const std::string text = message(std::move(network), data);
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  TrainingData data = noisy_digits();
  expect(small_classifier(), data, "mean_squared_error");
  data.training_targets = some_digits(59);
  expect(autoencoder(), data, "59 targets");
  data = noisy_digits();
  data.validation_targets = nullptr;
  expect(autoencoder(), data, "must both have targets");
  data.training_targets = nullptr;
  expect(autoencoder(), data, "cross_entropy");
  expect(autoencoder(2), noisy_digits(), "is not an image");
  EXPECT_THROW(evaluate(*std::make_unique<Network>(autoencoder()), some_digits(4)),
               InvalidArgument);
}

// A diverging training: a learning rate that is far too large, with validation after every
// iteration.
TrainingOptions restless(int64_t patience) {
  TrainingOptions options = small_options();
  options.solver.initial_learning_rate = 0.5;
  options.validation.frequency = 1;
  options.max_epochs = 6;
  options.validation.patience = patience;
  return options;
}

TrainingData digits() { return {.training = some_digits(60), .validation = some_digits(20, 100)}; }

TEST(Patience, EndsAfterSoManyValidationsWithoutAStrictlySmallerLoss) {
  Network forever = small_classifier();
  const TrainingResult whole = train(forever, digits(), restless(0));
  EXPECT_FALSE(whole.out_of_patience);
  for (int64_t patience : {1, 2, 3}) {
    int64_t expected = whole.last_iteration, without = 0;
    double smallest = std::numeric_limits<double>::infinity();
    for (const auto& v : whole.validations) {
      without = v.loss < smallest ? 0 : without + 1;
      smallest = std::min(smallest, v.loss);
      if (without == patience) {
        expected = v.iteration;
        break;
      }
    }
    Network network = small_classifier();
    const TrainingResult result = train(network, digits(), restless(patience));
    EXPECT_EQ(result.last_iteration, expected) << "patience " << patience;
    EXPECT_EQ(result.out_of_patience, without == patience);
    EXPECT_FALSE(result.stopped);
    EXPECT_EQ(result.digest, whole.iterations[static_cast<size_t>(expected) - 1].digest);
  }
}

TEST(Patience, IsPartOfWhatIsResumed) {
  Network network = small_classifier();
  const TrainingResult whole = train(network, digits(), restless(2));
  ASSERT_TRUE(whole.out_of_patience) << "the test needs a training that ends early";
  for (int64_t stop = 1; stop < whole.last_iteration; ++stop) {
    const TemporaryFolder folder;
    TrainingControl control{.checkpoint_folder = folder.path, .stop_after = stop};
    Network first = small_classifier(), second = small_classifier();
    train(first, digits(), restless(2), control);
    control.stop_after = 0;
    control.resume = true;
    const TrainingResult resumed = train(second, digits(), restless(2), control);
    ASSERT_EQ(resumed.iterations.front().iteration, stop + 1) << "it has begun anew";
    EXPECT_EQ(resumed.last_iteration, whole.last_iteration);
    EXPECT_EQ(resumed.digest, whole.digest);
    // Resuming again has nothing left to do.
    Network third = small_classifier();
    const TrainingResult again = train(third, digits(), restless(2), control);
    EXPECT_EQ(again.digest, whole.digest);
    EXPECT_TRUE(again.iterations.empty());
    EXPECT_TRUE(again.out_of_patience);
  }
}

TEST(OutputNetwork, BestIsThatOfTheSmallestValidationLoss) {
  // Enough epochs that the last iteration is worse than an earlier one, wherever that is on this
  // machine.
  TrainingOptions options = restless(0);
  const auto losses_rise = [](const std::vector<ValidationRecord>& v) {
    return std::any_of(v.begin(), v.end(), [&](const auto& r) { return r.loss < v.back().loss; });
  };
  TrainingResult plain;
  Network last;
  for (options.max_epochs = 2; options.max_epochs < 9; ++options.max_epochs) {
    last = small_classifier();
    plain = train(last, digits(), options);
    if (losses_rise(plain.validations)) break;
  }
  Network best = small_classifier();
  EXPECT_EQ(plain.network_iteration, plain.last_iteration);
  options.validation.output_network = OutputNetwork::best;
  const TrainingResult result = train(best, digits(), options);
  EXPECT_EQ(result.digest, plain.digest) << "what was computed stays the same";
  const auto& records = result.validations;
  const auto smallest = std::min_element(
      records.begin(), records.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
  EXPECT_EQ(result.network_iteration, smallest->iteration);
  ASSERT_NE(result.network_iteration, result.last_iteration) << "the test needs them to differ";
  EXPECT_EQ(evaluate(best, digits().validation).loss, smallest->loss);
  EXPECT_EQ(evaluate(last, digits().validation).loss, records.back().loss);
  // Same, after a stop behind the best iteration, whose values are in the checkpoint.
  const TemporaryFolder folder;
  TrainingControl control{.checkpoint_folder = folder.path,
                          .stop_after = result.last_iteration - 1};
  Network stopped = small_classifier(), resumed = small_classifier();
  const TrainingResult interrupted = train(stopped, digits(), options, control);
  EXPECT_EQ(interrupted.network_iteration, result.last_iteration - 1);
  control.stop_after = 0;
  control.resume = true;
  EXPECT_EQ(train(resumed, digits(), options, control).network_iteration, smallest->iteration);
  for (size_t i = 0; i < best.parameters().size(); ++i) {
    EXPECT_EQ(resumed.parameters()[i].value.to_vector(), best.parameters()[i].value.to_vector());
  }
  for (size_t i = 0; i < best.state().size(); ++i) {
    EXPECT_EQ(resumed.state()[i].value.to_vector(), best.state()[i].value.to_vector());
  }
}

TEST(OutputNetwork, BestAndPatienceNeedValidation) {
  TrainingOptions options = restless(1);
  Network network = small_classifier();
  EXPECT_THROW(train(network, {.training = some_digits(40)}, options), InvalidArgument);
  options.validation.patience = 0;
  options.validation.output_network = OutputNetwork::best;
  EXPECT_THROW(train(network, {.training = some_digits(40)}, options), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
