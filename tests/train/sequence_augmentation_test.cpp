// Trainings with augmented sequences: the law, what is augmented, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"
#include "tests/train/signals.h"

namespace lockstep::augmented_sequences {
namespace {

using testing::expect_says;
using testing::message_of;

constexpr int64_t kSequences = 64, kChannels = 3;

Augmentation changes() {
  return {
      .jitter = 0.2, .scaling = 0.1, .time_mask = 6, .time_mask_fraction = 0.5, .channel_mask = 1};
}

TrainingProblem problem_of(bool augment, testing::Failure failure) {
  testing::fail_here(std::move(failure));
  Network network{sequence_input({.channels = kChannels, .normalization = "z-score"}),
                  lstm({.units = 6, .carry_state = true}), dropout({.probability = 0.2}),
                  fully_connected({.units = 4}), softmax()};
  network.initialize(3);
  TrainingData data{.training =
                        with_targets(sequence_datastore(testing::signals(kSequences, kChannels)),
                                     step_labels(testing::signal_tags(kSequences)))};
  data.validation = subset(data.training, {2, 3, 5, 7, 11, 13, 17, 19, 23, 60});
  if (augment) data.augmentation = changes();
  return {std::move(network), data};
}

struct Trained {
  TrainingResult result;
  TrainingProblem problem;
};

Trained train_both(const TrainingOptions& options, bool augment = true,
                   const testing::Failure& failure = {}, TrainingControl control = {}) {
  const auto call = make_call<&problem_of>(augment, failure);
  TrainingProblem problem = problem_of(augment, {});
  TrainingResult result = train(call, problem.network, problem.data, options, control);
  return {std::move(result), std::move(problem)};
}

TrainingResult run(const TrainingOptions& options, const testing::Failure& failure = {},
                   TrainingControl control = {}) {
  return train_both(options, true, failure, control).result;
}

// With `length` 0 sequences are whole.
TrainingOptions options_of(int64_t length, int64_t threads = 1) {
  TrainingOptions options = testing::law_options(threads);
  options.mini_batch_size = 30;  // and a last one of 4
  options.shards.size = 4;
  options.data.sequence_length = length;
  return options;
}

class AugmentedSequences : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(WholeAndInSegments, AugmentedSequences, ::testing::Values(0, 8),
                         [](const auto& of) { return "Length" + std::to_string(of.param); });

TEST_P(AugmentedSequences, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(options_of(GetParam()));
  EXPECT_NE(one.digest, train_both(options_of(GetParam()), false).result.digest);
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(options_of(GetParam(), threads)));
  }
  for (const auto& load : {std::vector<double>{1, 1}, {3, 1}, {1, 0, 1}}) {
    TrainingOptions options = options_of(GetParam(), 2);
    options.workers.count = static_cast<int64_t>(load.size());
    options.workers.load = load;
    testing::expect_same_history(one, run(options));
  }
  TrainingOptions read_again = options_of(GetParam(), 2);
  read_again.data.cache_mib = 0;
  read_again.data.loader_threads = 3;
  testing::expect_same_history(one, run(read_again));
}

// Iteration 2 is the second segment of the first mini-batch where sequences are cut.
TEST_P(AugmentedSequences, DeathsAndResumesChangeNoBit) {
  const TrainingResult one = run(options_of(GetParam()));
  TrainingOptions options = options_of(GetParam(), 2);
  options.workers.count = 3;
  testing::Follower follower;
  const TrainingResult killed =
      run(options, {"backward", "kill", 2, 2, -1}, {.observers = {&follower}});
  EXPECT_EQ(testing::losses(follower).size(), 1u);
  testing::expect_same_history(one, killed);
  for (const int64_t workers : {0, 2}) {
    options.workers.count = workers;
    for (int64_t stop = 1; stop <= 4; ++stop) {
      const testing::TemporaryFolder folder;
      run(options, {}, {.checkpoint_folder = folder.path, .stop_after = stop});
      const TrainingResult rest =
          run(options, {}, {.checkpoint_folder = folder.path, .resume = true});
      EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain) << stop;
      EXPECT_EQ(rest.digest, one.digest) << stop;
    }
  }
}

TEST_P(AugmentedSequences, LikeLengthsHaveOneDigestToo) {
  TrainingOptions options = options_of(GetParam());
  options.mini_batch_size = 10;
  options.data.group_by_length = 3;
  const TrainingResult one = run(options);
  options.threads = 2;
  options.workers.count = 3;
  testing::expect_same_history(one, run(options));
}

// evaluate() never augments. The input's normalization is that of the data, too.
TEST_P(AugmentedSequences, ValidationAndStatisticsAreOfTheDataAsTheyAre) {
  TrainingOptions options = options_of(GetParam(), 2);
  options.validation.frequency = 0;  // after each epoch
  Trained with = train_both(options), without = train_both(options, false);
  ASSERT_FALSE(with.result.validations.empty());
  const Evaluation evaluated = evaluate(with.problem.network, with.problem.data.validation);
  EXPECT_EQ(with.result.validations.back().loss, evaluated.loss);
  EXPECT_EQ(with.result.validations.back().accuracy, evaluated.accuracy);
  for (const char* const state : {"sequence_input_1.offset", "sequence_input_1.factor"}) {
    EXPECT_EQ(with.problem.network.state_value(state).to_vector(),
              without.problem.network.state_value(state).to_vector());
  }
}

TEST(AugmentedSequencesTraining, TakesPartInTheIdentity) {
  const testing::TemporaryFolder folder;
  const TrainingOptions options = options_of(0, 2);
  run(options, {}, {.checkpoint_folder = folder.path, .stop_after = 2});
  TrainingProblem other = problem_of(true, {});
  other.data.augmentation.time_mask = 7;
  expect_says(message_of<Error>([&] {
                train(other.network, other.data, options,
                      {.checkpoint_folder = folder.path, .resume = true});
              }),
              "augmentation.time_mask");
}

TEST(AugmentedSequencesTraining, WhatDoesNotFitIsRefusedByName) {
  const auto refusal = [](const Augmentation& augmentation) {
    TrainingProblem problem = problem_of(false, {});
    problem.data.augmentation = augmentation;
    return message_of<Error>([&] { train(problem.network, problem.data, options_of(0)); });
  };
  expect_says(refusal({.rotation = {-5, 5}}), "[augmentation] rotation is for images, but");
  expect_says(refusal({.jitter = -1}), "[augmentation] jitter is -1, but must be >= 0");
  expect_says(refusal({.time_masks = 2}), "time_masks is given, but time_mask is 0");
  TrainingProblem tokens{
      Network{token_input({.vocabulary = 4}), embedding({.vocabulary = 4, .units = 3}),
              fully_connected({.units = 4}), softmax()},
      {}};
  tokens.network.initialize(1);
  StepLabels tags = testing::signal_tags(40);
  std::vector<IntegerArray> texts;
  for (const std::vector<int32_t>& one : tags.labels) {
    texts.push_back({{static_cast<int64_t>(one.size())}, one});
  }
  tokens.data.training = with_targets(sequence_datastore(std::move(texts)), step_labels(tags));
  tokens.data.augmentation.jitter = 0.1;
  expect_says(message_of<Error>([&] { train(tokens.network, tokens.data, options_of(0)); }),
              "[augmentation] jitter is for sequences of numbers, but");
}

}  // namespace
}  // namespace lockstep::augmented_sequences
