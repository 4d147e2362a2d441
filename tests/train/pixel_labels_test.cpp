// Trainings on labels of pixels: the loss and the metrics by hand, and the law with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/loop/memory_estimate.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"
#include "tests/train/support.h"

namespace lockstep::pixel_training {
namespace {

using testing::expect_says;
using testing::message_of;
using testing::patterned;

constexpr int64_t kImages = 23, kSide = 8, kClasses = 3;
const PixelClasses kNames{.names = {"ground", "wall", "roof"}, .ignored = {255}};

// Noise whose brightness tells the class, with some pixels of no class; image 4 has none at all.
Image labels_of(int64_t i) {
  Image labels = patterned(kSide, kSide, 1, static_cast<uint32_t>(i));
  for (int64_t p = 0; p < kSide * kSide; ++p) {
    uint8_t& pixel = labels.pixels[static_cast<size_t>(p)];
    const bool none = i == 4 || pixel % 11 == 0;
    pixel = none ? ignored_pixel : static_cast<uint8_t>((p / 13 + i) % kClasses);
  }
  return labels;
}

Image image_of(int64_t i) {
  Image image = patterned(kSide, kSide, 3, static_cast<uint32_t>(100 + i));
  for (int64_t p = 0; p < 3 * kSide * kSide; ++p) {
    uint8_t& pixel = image.pixels[static_cast<size_t>(p)];
    pixel = static_cast<uint8_t>(pixel / 4 + 60 * ((p / 3 / 13 + i) % kClasses));
  }
  return image;
}

DatastorePtr pixel_data(int64_t n = kImages) {
  std::vector<Image> images, labels;
  for (int64_t i = 0; i < n; ++i) {
    images.push_back(image_of(i));
    labels.push_back(labels_of(i));
  }
  return with_targets(array_datastore(images), label_images(array_datastore(labels), kNames));
}

Network pixel_network(int64_t classes = kClasses) {
  Network network{image_input({.height = kSide, .width = kSide, .channels = 3}),
                  convolution2d({.filters = 6, .kernel = {3, 3}, .padding = same_padding}),
                  batch_normalization(),
                  relu(),
                  dropout({.probability = 0.1}),
                  convolution2d({.filters = classes, .kernel = {1, 1}}),
                  softmax()};
  network.initialize(3);
  return network;
}

TrainingProblem pixel_problem(testing::Failure failure) {
  testing::fail_here(std::move(failure));
  TrainingData data{.training = pixel_data()};
  data.validation = subset(data.training, {2, 3, 4, 5, 7, 11, 20});
  data.augmentation = {.reflect_x = true, .translate_x = {-2, 2}, .rotation = {-20, 20}};
  return {pixel_network(), data};
}

TrainingOptions pixel_options(int64_t threads) {
  TrainingOptions options = testing::law_options(threads);
  options.mini_batch_size = 10;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.shards.size = 4;
  options.solver.initial_learning_rate = 0.05;
  options.class_weights = {1, 2.5, 0.5};
  options.validation.metrics = {"iou", "dice", "auc"};
  return options;
}

TrainingResult run(const TrainingOptions& options, TrainingControl control = {},
                   const testing::Failure& failure = {}) {
  const auto call = make_call<&pixel_problem>(failure);
  TrainingProblem problem = pixel_problem({});
  return train(call, problem.network, problem.data, options, control);
}

TEST(PixelLabels, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(pixel_options(1));
  EXPECT_LT(one.iterations.back().loss, one.iterations.front().loss);
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(pixel_options(threads)));
  }
  for (const auto& load : {std::vector<double>{1, 1}, {3, 1}}) {
    TrainingOptions options = pixel_options(2);
    options.workers.count = static_cast<int64_t>(load.size());
    options.workers.load = load;
    testing::expect_same_history(one, run(options));
  }
  TrainingOptions checked = pixel_options(2);
  checked.shards.check_frequency = 1;
  EXPECT_EQ(run(checked).digest, one.digest);
}

TEST(PixelLabels, ADeathAndAResumeChangeNoBit) {
  const TrainingResult one = run(pixel_options(1));
  TrainingOptions options = pixel_options(1);
  options.workers.count = 3;
  const TrainingResult killed = run(options, {}, {"backward", "kill", 2, 1, -1});
  testing::expect_same_history(one, killed);
  const testing::TemporaryFolder folder;
  options = pixel_options(2);
  options.checkpoints.frequency = 2;
  run(options, {.checkpoint_folder = folder.path, .stop_after = 5});
  const TrainingResult rest = run(options, {.checkpoint_folder = folder.path, .resume = true});
  EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain);
}

// A linear network, whose loss and gradient are easy to compute in double precision.
Network linear_network() {
  Network network{
      image_input({.height = kSide, .width = kSide, .channels = 3, .normalization = "none"}),
      convolution2d({.filters = kClasses, .kernel = {1, 1}}), softmax()};
  network.initialize(5);
  const Tensor& weights = network.parameters()[0].value;
  for (int64_t i = 0; i < weights.shape().elements(); ++i) {
    weights.data<float>()[i] = 0.002f * static_cast<float>((i * 7) % 5 - 2);
  }
  return network;
}

struct ByHand {
  double loss = 0, pixels = 0, right = 0;
  std::array<double, kClasses* 3> gradient = {};  // classes x channels
};

// The scores of a pixel as probabilities.
std::array<double, kClasses> probabilities_of(const Tensor& weights, const uint8_t* pixel) {
  std::array<double, kClasses> e{};
  double total = 0;
  for (size_t k = 0; k < kClasses; ++k) {
    double score = 0;
    for (size_t c = 0; c < 3; ++c) score += double{weights.data<float>()[k * 3 + c]} * pixel[c];
    total += e[k] = std::exp(score);
  }
  for (double& p : e) p /= total;
  return e;
}

// The mean over all pixels with a class of weight x -log(probability).
ByHand by_hand(const Network& network, const std::vector<double>& weights, int64_t n) {
  ByHand sums;
  const Tensor& w = network.parameters()[0].value;
  for (int64_t i = 0; i < n; ++i) {
    const Image image = image_of(i), labels = labels_of(i);
    for (size_t p = 0; p < labels.pixels.size(); ++p) {
      const uint8_t label = labels.pixels[p];
      if (label == ignored_pixel) continue;
      const auto found = probabilities_of(w, &image.pixels[3 * p]);
      sums.loss -= weights[label] * std::log(found[label]);
      sums.pixels += 1;
      sums.right += std::max_element(found.begin(), found.end()) - found.begin() == label;
      for (size_t k = 0; k < kClasses; ++k) {
        for (size_t c = 0; c < 3; ++c) {
          sums.gradient[k * 3 + c] +=
              weights[label] * (found[k] - (k == label ? 1 : 0)) * image.pixels[3 * p + c];
        }
      }
    }
  }
  sums.loss /= sums.pixels;
  for (double& g : sums.gradient) g /= sums.pixels;
  return sums;
}

// The soft Dice loss of each image, counted for each of its pixels with a class.
ByHand dice_by_hand(const Network& network, double smooth, int64_t n) {
  ByHand sums;
  const Tensor& w = network.parameters()[0].value;
  for (int64_t i = 0; i < n; ++i) {
    const Image image = image_of(i), labels = labels_of(i);
    std::array<double, kClasses> both{}, all{};
    double pixels = 0;
    for (size_t p = 0; p < labels.pixels.size(); ++p) {
      if (labels.pixels[p] == ignored_pixel) continue;
      const auto found = probabilities_of(w, &image.pixels[3 * p]);
      for (size_t k = 0; k < kClasses; ++k) {
        const double truth = k == labels.pixels[p] ? 1 : 0;
        both[k] += 2 * found[k] * truth;
        all[k] += found[k] + truth;
      }
      pixels += 1;
    }
    for (size_t k = 0; k < kClasses; ++k) {
      sums.loss += pixels * (1 - (both[k] + smooth) / (all[k] + smooth)) / kClasses;
    }
    sums.pixels += pixels;
    for (size_t p = 0; p < labels.pixels.size(); ++p) {
      if (labels.pixels[p] == ignored_pixel) continue;
      const auto found = probabilities_of(w, &image.pixels[3 * p]);
      for (size_t k = 0; k < kClasses; ++k) {
        const double truth = k == labels.pixels[p] ? 1 : 0, below = all[k] + smooth;
        const double slope = (both[k] + smooth) / (below * below) - 2 * truth / below;
        for (size_t j = 0; j < kClasses; ++j) {
          const double of_score = found[k] * ((k == j ? 1 : 0) - found[j]);
          for (size_t c = 0; c < 3; ++c) {
            sums.gradient[j * 3 + c] +=
                pixels * slope * of_score * image.pixels[3 * p + c] / kClasses;
          }
        }
      }
    }
  }
  sums.loss /= sums.pixels;
  for (double& g : sums.gradient) g /= sums.pixels;
  return sums;
}

TEST(PixelLabels, LossAndGradientOfDiceAreThoseOfImages) {
  for (const double crossed : {0, 1}) {
    for (const int64_t shard : {23, 4}) {
      Network network = linear_network();
      network.set_loss(crossed > 0 ? "cross_entropy + dice_loss"
                                   : "dice_loss(output, target, smooth=0.5)");
      ByHand wanted = dice_by_hand(network, crossed > 0 ? 1 : 0.5, kImages);
      const ByHand other = by_hand(network, {1, 1, 1}, kImages);
      EXPECT_NEAR(evaluate(network, pixel_data()).loss, wanted.loss + crossed * other.loss, 1e-6);
      const std::vector<float> before = network.parameters()[0].value.to_vector();
      TrainingOptions options = testing::law_options(2);
      options.mini_batch_size = kImages;
      options.shards.size = shard;
      options.max_epochs = 1;
      options.solver.momentum = 0;
      options.solver.l2 = 0;
      options.solver.initial_learning_rate = 1e-3;
      const TrainingResult result = train(network, {.training = pixel_data()}, options);
      EXPECT_NEAR(result.iterations[0].loss, wanted.loss + crossed * other.loss, 1e-6);
      EXPECT_NEAR(result.iterations[0].accuracy, other.right / other.pixels, 1e-12);
      const std::vector<float> after = network.parameters()[0].value.to_vector();
      for (size_t i = 0; i < before.size(); ++i) {
        const double step = (double{before[i]} - double{after[i]}) / 1e-3;
        const double slope = wanted.gradient[i] + crossed * other.gradient[i];
        EXPECT_NEAR(step, slope, 2e-5 + 2e-4 * std::abs(slope)) << i;
      }
    }
  }
}

TrainingProblem dice_problem(testing::Failure failure) {
  TrainingProblem problem = pixel_problem(std::move(failure));
  problem.network.set_loss("cross_entropy + dice_loss");
  return problem;
}

TEST(PixelLabels, OneDigestWithDice) {
  const auto trained = [](int64_t threads, int64_t workers, const testing::Failure& failure = {}) {
    const auto call = make_call<&dice_problem>(failure);
    TrainingProblem problem = dice_problem({});
    TrainingOptions options = pixel_options(threads);
    options.class_weights = {};
    options.workers.count = workers;
    return train(call, problem.network, problem.data, options, {});
  };
  const TrainingResult one = trained(1, 0);
  EXPECT_LT(one.iterations.back().loss, one.iterations.front().loss);
  testing::expect_same_history(one, trained(3, 0));
  testing::expect_same_history(one, trained(1, 2));
  testing::expect_same_history(one, trained(1, 3, {"backward", "kill", 2, 1, -1}));
}

TEST(PixelLabels, LossAndGradientAreThoseOfAllPixelsWithAClass) {
  for (const std::vector<double>& weights : {std::vector<double>{}, {1, 2.5, 0.25}}) {
    for (const int64_t shard : {23, 4}) {
      Network network = linear_network();
      const ByHand wanted =
          by_hand(network, weights.empty() ? std::vector<double>{1, 1, 1} : weights, kImages);
      const std::vector<float> before = network.parameters()[0].value.to_vector();
      TrainingOptions options = testing::law_options(1);
      options.mini_batch_size = kImages;
      options.shards.size = shard;
      options.max_epochs = 1;
      options.solver.momentum = 0;
      options.solver.l2 = 0;
      options.solver.initial_learning_rate = 1e-4;
      options.class_weights = weights;
      TrainingData data{.training = pixel_data()};
      const TrainingResult result = train(network, data, options);
      EXPECT_NEAR(result.iterations[0].loss, wanted.loss, 1e-6);
      EXPECT_NEAR(result.iterations[0].accuracy, wanted.right / wanted.pixels, 1e-12);
      const std::vector<float> after = network.parameters()[0].value.to_vector();
      for (size_t i = 0; i < before.size(); ++i) {
        const double step = (double{before[i]} - double{after[i]}) / 1e-4;
        EXPECT_NEAR(step, wanted.gradient[i], 2e-3 * (1 + std::abs(wanted.gradient[i]))) << i;
      }
    }
  }
}

// PyTorch's mean over no pixels is NaN; here they add nothing.
TEST(PixelLabels, AMiniBatchWithoutClassesChangesNothing) {
  Network network = linear_network();
  const std::vector<float> before = network.parameters()[0].value.to_vector();
  TrainingOptions options = testing::law_options(2);
  options.mini_batch_size = 2;
  options.shards.size = 1;
  options.max_epochs = 1;
  options.solver.l2 = 0;
  const DatastorePtr none = subset(pixel_data(), {4, 4});
  const TrainingResult result = train(network, {.training = none}, options);
  EXPECT_EQ(result.iterations.at(0).loss, 0);
  EXPECT_EQ(network.parameters()[0].value.to_vector(), before);
  const Evaluation evaluation = evaluate(network, none, {.metrics = {"iou"}});
  EXPECT_TRUE(std::isnan(evaluation.loss));
  EXPECT_TRUE(std::isnan(evaluation.metrics[0].value));
}

TEST(PixelLabels, MetricsCountPixels) {
  Network network = linear_network();
  const DatastorePtr data = pixel_data(70);  // more than a batch of an evaluation
  const ByHand wanted = by_hand(network, {1, 1, 1}, 70);
  const std::vector<Image> predicted = predict_labels(network, data);
  const Evaluation e = evaluate(
      network, data,
      {.threads = 2, .metrics = {"accuracy", "iou", "dice", "f1", "top-2"}, .confusion = true});
  std::array<int64_t, kClasses * kClasses> pairs{};
  int64_t all = 0;
  for (int64_t i = 0; i < 70; ++i) {
    const Image labels = labels_of(i);
    for (size_t p = 0; p < labels.pixels.size(); ++p) {
      if (labels.pixels[p] == ignored_pixel) continue;
      ++pairs[labels.pixels[p] * kClasses + predicted[static_cast<size_t>(i)].pixels[p]];
      ++all;
    }
  }
  double right = 0, iou = 0, dice = 0;
  for (size_t k = 0; k < kClasses; ++k) {
    double observed = 0, found = 0;
    for (size_t j = 0; j < kClasses; ++j) {
      observed += static_cast<double>(pairs[k * kClasses + j]);
      found += static_cast<double>(pairs[j * kClasses + k]);
      EXPECT_EQ(e.confusion->count(static_cast<int64_t>(k), static_cast<int64_t>(j)),
                pairs[k * kClasses + j]);
    }
    const auto both = static_cast<double>(pairs[k * kClasses + k]);
    right += both;
    iou += both / (observed + found - both) / kClasses;
    dice += 2 * both / (observed + found) / kClasses;
  }
  EXPECT_EQ(e.observations, 70);
  EXPECT_NEAR(e.loss, wanted.loss, 1e-6);
  EXPECT_DOUBLE_EQ(e.accuracy, right / static_cast<double>(all));
  EXPECT_DOUBLE_EQ(e.metrics[0].value, e.accuracy);
  EXPECT_DOUBLE_EQ(e.metrics[1].value, iou);
  EXPECT_DOUBLE_EQ(e.metrics[2].value, dice);
  EXPECT_DOUBLE_EQ(e.metrics[3].value, dice);
  EXPECT_GT(e.metrics[4].value, e.accuracy);
  // Without metrics that need scores, pairs of classes suffice.
  const Evaluation less = evaluate(network, data, {.metrics = {"iou", "accuracy"}});
  EXPECT_EQ(less.metrics[0].value, e.metrics[1].value);
  EXPECT_EQ(less.metrics[1].value, e.accuracy);
}

// Metrics of a user that need no scores see the pairs of 64 images together.
struct WrongPixels {
  int64_t wrong = 0;
  bool of_classes() const { return true; }
  void accumulate(const ScoredObservation& o) { wrong += o.label == o.predicted ? 0 : o.count; }
  void merge(const WrongPixels& later) { wrong += later.wrong; }
  double finish() const { return static_cast<double>(wrong); }
};
struct WrongInOrder {
  int64_t wrong = 0, last = 0;
  bool of_classes() const { return true; }
  void accumulate(const ScoredObservation& o) {
    EXPECT_LE(last, o.index);
    last = o.index;
    wrong += o.label == o.predicted ? 0 : o.count;
  }
  double finish() const { return static_cast<double>(wrong); }
};

TEST(PixelLabels, PairsOfClassesAreSummed) {
  Network network = linear_network();
  const DatastorePtr data = pixel_data(200);  // four chunks
  const std::vector<MetricPtr> own{make_metric("wrong", WrongPixels{}),
                                   make_metric("in order", WrongInOrder{})};
  const auto with = [&](int threads, const std::vector<std::string>& metrics) {
    return evaluate(
        network, data,
        {.threads = threads, .metrics = metrics, .custom_metrics = own, .confusion = true});
  };
  const Evaluation one = with(1, {"iou", "dice"});
  const int64_t all = one.confusion->total();
  const double wrong = static_cast<double>(all) * (1 - one.accuracy);
  EXPECT_GT(one.metrics[2].value, 0);
  EXPECT_NEAR(one.metrics[2].value, wrong, 1e-6);
  EXPECT_EQ(one.metrics[3].value, one.metrics[2].value);
  const Evaluation three = with(3, {"iou", "dice"});
  EXPECT_EQ(three.metrics, one.metrics);
  EXPECT_EQ(three.confusion, one.confusion);
  EXPECT_EQ(three.loss, one.loss);
  // The estimate of memory has no table for each image.
  const auto estimated = [](int64_t images, int64_t workers) {
    TrainingOptions options = testing::law_options(2);
    options.workers.count = workers;
    return estimate_memory(pixel_network(), {.training = pixel_data(images)}, options.resolved(),
                           pixel_data(images))
        .evaluation;
  };
  EXPECT_EQ(estimated(640, 0) - estimated(128, 0), 512 * 8u);
  EXPECT_EQ(estimated(640, 2) - estimated(128, 2), 512 * 8u + 8 * 9 * 8u);
}

TEST(PixelLabels, AnExpressionIsALossByPixel) {
  Network network = linear_network();
  network.set_loss("cross_entropy(output, target, weights=[1, 2.5, 0.25])");
  const ByHand wanted = by_hand(network, {1, 2.5, 0.25}, kImages);
  EXPECT_NEAR(evaluate(network, pixel_data()).loss, wanted.loss, 1e-6);
  network.set_loss("mean(cross_entropy(output, target), axis=0)");
  expect_says(message_of<Error>([&] { evaluate(network, pixel_data()); }),
              "one number for each label");
}

TEST(PixelLabels, BalancedWeightsCountPixels) {
  std::array<double, kClasses> counts{};
  double all = 0;
  for (int64_t i = 0; i < kImages; ++i) {
    for (const uint8_t pixel : labels_of(i).pixels) {
      if (pixel == ignored_pixel) continue;
      ++counts[pixel];
      ++all;
    }
  }
  const std::vector<double> weights = balanced_class_weights(*pixel_data(), 2);
  ASSERT_EQ(weights.size(), 3u);
  for (size_t k = 0; k < kClasses; ++k) EXPECT_DOUBLE_EQ(weights[k], all / (3 * counts[k]));
}

TEST(PixelLabels, WhatDoesNotFitIsRefused) {
  const auto said = [](const Network& given, const TrainingData& data,
                       TrainingOptions options = {}) {
    options.device = "cpu";
    Network network = given.clone();
    return message_of<Error>([&] { train(network, data, options); });
  };
  const TrainingData data{.training = pixel_data()};
  expect_says(said(pixel_network(4), data), "3 classes of pixels, but the network's output has 4");
  Network small{image_input({.height = kSide, .width = kSide, .channels = 3}),
                convolution2d({.filters = 3, .kernel = {3, 3}}), softmax()};
  small.initialize(1);
  expect_says(said(small, data), "has another size than its input");
  Network vector{image_input({.height = kSide, .width = kSide, .channels = 3}),
                 fully_connected({.units = 3}), softmax()};
  vector.initialize(1);
  expect_says(said(vector, data), "a label for each pixel");
  Network numbers = pixel_network();
  numbers.set_loss("mean_squared_error");
  expect_says(said(numbers, data), "need a loss of labels");
  std::vector<Image> images;
  for (int64_t i = 0; i < 6; ++i) images.push_back(image_of(i));
  const DatastorePtr labeled =
      array_datastore(images, {.labels = {0, 1, 2, 0, 1, 2}, .classes = {"a", "b", "c"}});
  expect_says(said(pixel_network(), {.training = labeled}), "the network's output is 3x8x8");
  TrainingData apart{.training = labeled};
  std::vector<Image> labels(6, labels_of(0));
  apart.training_targets = label_images(array_datastore(labels), kNames);
  expect_says(said(pixel_network(), apart), "labels by pixel");
  TrainingData mixed = data;
  mixed.augmentation.cutmix = 1;
  expect_says(said(pixel_network(), mixed), "cutmix is for images with class labels");
  TrainingOptions weights;
  weights.class_weights = {1, 2};
  expect_says(said(pixel_network(), data, weights), "an entry for each of the 3 classes");
  TrainingOptions balanced;
  balanced.data.sampling = Sampling::balanced;
  expect_says(said(pixel_network(), data, balanced), "sampling");
  Network other = pixel_network();
  other.set_loss("cross_entropy(output, target, label_smoothing=0.1)");
  weights.class_weights = {1, 2, 3};
  expect_says(said(other, data, weights), "class_weights of pixels are for the loss cross_entropy");
  expect_says(message_of<Error>([&] { predict_labels(vector, data.training); }),
              "labels of pixels need");
}

}  // namespace
}  // namespace lockstep::pixel_training
