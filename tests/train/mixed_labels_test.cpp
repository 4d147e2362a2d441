// Trainings whose images are mixed: the loss beside PyTorch's, the law, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/loop/make_training_iteration.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"
#include "tests/train/support.h"

namespace lockstep::mixed_labels {
namespace {

using testing::expect_says;
using testing::message_of;

// ---- The loss and its gradient ----

// A solver that keeps the sums of gradients.
class GradientKeeper : public Solver {
 public:
  explicit GradientKeeper(const Network& network) {
    for (const auto& p : network.parameters()) {
      gradients.emplace_back(static_cast<size_t>(p.value.shape().elements()));
    }
  }
  void update(size_t index, const IndexRange& elements, const float* sum,
              const UpdateScalars&) override {
    std::copy_n(sum, elements.count, gradients[index].begin() + elements.first);
  }
  UpdateNumbers numbers(size_t, const UpdateScalars&) const override { return {}; }
  std::vector<Tensor> state(size_t) const override { return {}; }
  std::vector<std::string> state_names() const override { return {}; }

  std::vector<std::vector<float>> gradients;
};

// Logits of four observations that a network with w = 1 and b = 0 gives, with two labels each.
MiniBatch logits_of_mixed() {
  MiniBatch batch;
  batch.observations = {0, 1, 2, 3};
  batch.set("input",
            Tensor::from(std::vector<float>{1, 2, -1, 0.5, 0, 3, -2, 0.25, 1, 4, 4, -4}, {4, 3}));
  batch.set("labels", Tensor::from(std::vector<int32_t>{1, 0, 2, 1}, {4}));
  batch.set("other_labels", Tensor::from(std::vector<int32_t>{1, 1, 0, 2}, {4}));
  batch.set("label_shares", Tensor::from(std::vector<float>{0.7F, 0.7F, 0.25F, 1}, {4}));
  return batch;
}

void expect_sums(const TrainingOptions& given, bool normalized, double loss,
                 const std::vector<double>& gradients) {
  for (const int64_t shard : {4, 3, 1}) {
    TrainingOptions options = given;
    options.mini_batch_size = 4;
    options.shards.size = shard;
    options.seed = 1;
    Network network{feature_input({.features = 3, .normalization = "none"}),
                    fully_connected({.units = 3})};
    if (normalized) network.add(softmax());
    network.initialize(1);
    network.parameter("fully_connected_1.weights")
        .copy_from(Tensor::from(std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}, Shape{3, 3}));
    GradientKeeper keeper(network);
    ThreadPool pool(2);
    const auto step = make_training_iteration(network, keeper, pool, options, {DType::f32}, nullptr,
                                              nullptr, {}, true);
    step->begin(logits_of_mixed(), {0.1, 1, 4});
    EXPECT_NEAR(step->finish().loss_sum, loss, 2e-6) << shard;
    const std::vector<float>& bias = keeper.gradients.at(1);
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(static_cast<double>(bias[c]), gradients[c], 2e-6) << shard << ", " << c;
    }
  }
}

// torch.nn.functional.cross_entropy(logits, share * one_hot(labels) + (1 - share) *
// one_hot(other_labels), reduction="sum") of PyTorch 2.15 in fp64.
TEST(MixedLabels, HaveTheLossOfPyTorch) {
  expect_sums({}, true, 6.486326261003639,
              {-0.5853576382884366, -0.74038507946714, 1.3257427177555765});
}

TEST(MixedLabels, HaveTheWeightsOfBothClasses) {
  TrainingOptions options;
  options.class_weights = {0.5, 2, 1};
  expect_sums(options, true, 6.264912407140363,
              {0.8831632829471945, -1.953656659551564, 1.0704933766043698});
}

TEST(MixedLabels, AreSmoothed) {
  TrainingOptions options;
  options.label_smoothing = 0.2;
  expect_sums(options, true, 6.9229929276703075,
              {-0.5620243049551034, -0.5470517461338067, 1.10907605108891});
  // As torchvision's references, without soft targets: the two losses by their shares.
  options.class_weights = {0.5, 2, 1};
  expect_sums(options, true, 6.832072719946473,
              {0.774947177423787, -1.7323485128502507, 0.9574013354264638});
}

// ---- Whole trainings ----

Augmentation mixing() {
  Augmentation augmentation;
  augmentation.reflect_x = true;
  augmentation.mixup = 0.4;
  augmentation.cutmix = 1;
  return augmentation;
}

TrainingProblem mixed_problem(bool mixed, testing::Failure failure) {
  testing::fail_here(std::move(failure));
  TrainingProblem problem = testing::law_problem();
  if (mixed) problem.data.augmentation = mixing();
  return problem;
}

TrainingResult run(const TrainingOptions& options, bool mixed = true,
                   const testing::Failure& failure = {}, TrainingControl control = {}) {
  const auto call = make_call<&mixed_problem>(mixed, failure);
  TrainingProblem problem = mixed_problem(mixed, {});
  return train(call, problem.network, problem.data, options, control);
}

TEST(MixedLabels, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(testing::law_options(1));
  EXPECT_NE(one.digest, run(testing::law_options(1), false).digest);
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(testing::law_options(threads)));
  }
  for (const auto& load : {std::vector<double>{1, 1}, {3, 1}, {1, 0, 1}}) {
    TrainingOptions options = testing::law_options(2);
    options.workers.count = static_cast<int64_t>(load.size());
    options.workers.load = load;
    testing::expect_same_history(one, run(options));
  }
  TrainingOptions read_again = testing::law_options(2);
  read_again.data.cache_mib = 0;
  read_again.data.loader_threads = 3;
  testing::expect_same_history(one, run(read_again));
}

TEST(MixedLabels, StopsAndResumesChangeNoBit) {
  const TrainingResult one = run(testing::law_options(1));
  for (const int64_t workers : {0, 2}) {
    TrainingOptions options = testing::law_options(2);
    options.workers.count = workers;
    for (const int64_t stop : {1, 4, 7}) {
      const testing::TemporaryFolder folder;
      run(options, true, {}, {.checkpoint_folder = folder.path, .stop_after = stop});
      const TrainingResult rest =
          run(options, true, {}, {.checkpoint_folder = folder.path, .resume = true});
      EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain) << stop;
      EXPECT_EQ(rest.digest, one.digest) << stop;
    }
  }
}

TEST(MixedLabels, ADeviceGivesTheSame) {
  const devicetest::FakeDevice fake;
  const auto with = [](const std::string& device) {
    TrainingOptions options = testing::law_options(2);
    options.class_weights = {1, 2, 0.5, 1, 1, 3, 1, 1, 1, 0.25};
    options.device = device;
    return run(options).network_digest;
  };
  EXPECT_EQ(with("cuda:0"), with("cpu"));
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(MixedLabels, TakePartInTheIdentity) {
  const testing::TemporaryFolder folder;
  run(testing::law_options(1), true, {}, {.checkpoint_folder = folder.path, .stop_after = 2});
  TrainingProblem other = mixed_problem(true, {});
  other.data.augmentation.cutmix = 0.5;
  expect_says(message_of<Error>([&] {
                train(other.network, other.data, testing::law_options(1),
                      {.checkpoint_folder = folder.path, .resume = true});
              }),
              "augmentation.cutmix");
}

TEST(MixedLabels, WhatHasNoLabelsIsRefused) {
  const auto refusal = [](const std::function<void(TrainingProblem&)>& change) {
    TrainingProblem problem = mixed_problem(true, {});
    change(problem);
    return message_of<Error>(
        [&] { train(problem.network, problem.data, testing::law_options(1)); });
  };
  expect_says(refusal([](TrainingProblem& p) { p.data.training_targets = p.data.training; }),
              "[augmentation] mixup is for images with class labels");
  expect_says(refusal([](TrainingProblem& p) { p.data.augmentation.mixup = -1; }),
              "[augmentation] mixup is -1");
  expect_says(refusal([](TrainingProblem& p) {
                p.data.loss = {.function = [](Shard& shard) { return shard[0]; }, .name = "own"};
              }),
              "a loss function");
  expect_says(refusal([](TrainingProblem& p) {
                p.data.training = array_datastore({2, {3}, {1, 2, 3, 4, 5, 6}}, {.labels = {0, 1}});
                p.data.validation = nullptr;
                p.data.augmentation.reflect_x = false;
                p.network = Network{feature_input({.features = 3}), fully_connected({.units = 2}),
                                    softmax()};
                p.network.initialize(1);
              }),
              "mixup is for images");
}

}  // namespace
}  // namespace lockstep::mixed_labels
