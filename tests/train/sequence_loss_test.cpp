// Losses of users on sequences of different lengths: steps after the ends do not count.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/train/law_problem.h"
#include "tests/train/same_history.h"
#include "tests/train/signals.h"
#include "tests/train/support.h"

namespace lockstep::sequence_losses {
namespace {

using testing::expect_says;
using testing::message_of;

constexpr int64_t kSequences = 47, kChannels = 2;

std::vector<Array> inputs() { return testing::signals(kSequences, kChannels); }

enum class Kind { classifier, tagger, regression };

DatastorePtr data_of(Kind kind) {
  if (kind == Kind::classifier) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSequences; ++i) labels.push_back(i * 3 % 4);
    return sequence_datastore(inputs(), {.labels = labels});
  }
  if (kind == Kind::tagger) {
    return with_targets(sequence_datastore(inputs()),
                        step_labels(testing::signal_tags(kSequences)));
  }
  std::vector<Array> targets;
  for (const Array& one : inputs()) {
    Array target{{one.shape[0], 1}, {}};
    for (int64_t t = 0; t < one.shape[0]; ++t) {
      target.values.push_back(0.5f * one.values[static_cast<size_t>(t * kChannels)] + 0.3f);
    }
    targets.push_back(std::move(target));
  }
  return with_targets(sequence_datastore(inputs()), sequence_datastore(std::move(targets)));
}

// Both directions: what the ends are changes every step.
Network network_of(Kind kind, bool carries = false) {
  Network network;
  network.add(sequence_input({.channels = kChannels, .normalization = "none"}));
  network.add(carries ? lstm({.units = 5, .carry_state = true})
                      : lstm({.units = 5,
                              .output = kind == Kind::classifier ? "last" : "sequence",
                              .bidirectional = true}));
  network.add(fully_connected({.units = kind == Kind::regression ? 1 : 4}));
  if (kind == Kind::regression) {
    network.set_loss("mean_squared_error");
  } else {
    network.add(softmax());
  }
  network.initialize(3);
  return network;
}

// The losses that the networks have.
Tensor classified(Shard& shard) {
  return ops::softmax_cross_entropy(shard.forward(shard[0], {.outputs = {"fully_connected_1"}}),
                                    shard[1]);
}
Tensor tagged(Shard& shard) {
  const Tensor scores = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  const int64_t n = scores.shape()[0], steps = scores.shape()[1];
  return ops::softmax_cross_entropy(scores.reshaped({n * steps, 4}), shard[1].reshaped({n * steps}))
      .reshaped({n, steps});
}
Tensor squared(Shard& shard) {
  const Tensor error = shard.forward(shard[0]) - shard[1];
  return ops::squeeze(error * error, {2});
}
// Another one, with the lengths in its hands. The distances after the ends are not 0.
Tensor distance(Shard& shard) {
  const Tensor y = shard.forward(shard[0] * 1.0, {.lengths = {shard.lengths(0)}});
  return ops::squeeze(ops::abs(y - shard[1]), {2}) + 0.25;
}

TrainingLoss loss_of(Kind kind) {
  if (kind == Kind::classifier) return {classified, "classified"};
  if (kind == Kind::tagger) return {tagged, "tagged", true};
  return {squared, "squared", true};
}

TrainingProblem problem(Kind kind, bool own, bool carries) {
  TrainingData data{.training = data_of(kind)};
  data.validation = subset(data.training, {2, 3, 5, 7, 11, 13, 17, 19, 23, 46});
  if (own) data.loss = loss_of(kind);
  return {network_of(kind, carries), data};
}

TrainingOptions options_of(int64_t threads) {
  TrainingOptions options = testing::law_options(threads);
  options.mini_batch_size = 30;  // and a last one of 17
  options.shards.size = 4;
  return options;
}

TrainingResult run(Kind kind, const TrainingOptions& options, bool own = true,
                   bool carries = false) {
  const auto call = make_call<&problem>(kind, own, carries);
  TrainingProblem mine = problem(kind, own, carries);
  return train(call, mine.network, mine.data, options);
}

class SequenceLoss : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, SequenceLoss,
                         ::testing::Values(Kind::classifier, Kind::tagger, Kind::regression),
                         [](const auto& of) {
                           return std::string(of.param == Kind::classifier ? "Classifier"
                                              : of.param == Kind::tagger   ? "Tagger"
                                                                           : "Regression");
                         });

TEST_P(SequenceLoss, IsTheNetworksLossWhereBothAreTheSame) {
  const TrainingResult own = run(GetParam(), options_of(2)),
                       network = run(GetParam(), options_of(2), false);
  ASSERT_EQ(own.iterations.size(), network.iterations.size());
  for (size_t i = 0; i < own.iterations.size(); ++i) {
    EXPECT_NEAR(own.iterations[i].loss, network.iterations[i].loss, 1e-5) << i;
  }
  ASSERT_FALSE(own.validations.empty());
  ASSERT_EQ(own.validations.size(), network.validations.size());
  for (size_t i = 0; i < own.validations.size(); ++i) {
    EXPECT_NEAR(own.validations[i].loss, network.validations[i].loss, 1e-5) << i;
    EXPECT_PRED2(testing::same_number, own.validations[i].accuracy,
                 network.validations[i].accuracy);
  }
}

TEST_P(SequenceLoss, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(GetParam(), options_of(1));
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(GetParam(), options_of(threads)));
  }
  TrainingOptions options = options_of(2);
  options.workers.count = 3;
  testing::expect_same_history(one, run(GetParam(), options));
  options.workers.count = 0;
  options.shards.check_frequency = 1;
  EXPECT_EQ(run(GetParam(), options).digest, one.digest);
}

TEST(SequenceLosses, SegmentsCarryStates) {
  for (const Kind kind : {Kind::tagger, Kind::regression}) {
    TrainingOptions options = options_of(1);
    options.data.sequence_length = 8;
    const TrainingResult one = run(kind, options, true, true);
    EXPECT_GT(one.iterations.size(), 2u * 3);
    options.threads = 3;
    testing::expect_same_history(one, run(kind, options, true, true));
    options.workers.count = 2;
    testing::expect_same_history(one, run(kind, options, true, true));
    const TrainingResult network = run(kind, options, false, true);
    ASSERT_EQ(one.iterations.size(), network.iterations.size());
    for (size_t i = 0; i < one.iterations.size(); ++i) {
      EXPECT_NEAR(one.iterations[i].loss, network.iterations[i].loss, 1e-5) << i;
    }
  }
}

// By the predictions of each sequence alone: the sum over the valid steps, divided by their number.
TEST(SequenceLosses, AreMeansOverTheValidStepsOfTheMiniBatch) {
  TrainingProblem mine = problem(Kind::regression, false, false);
  mine.data.loss = {distance, "distance", true};
  TrainingOptions options = options_of(2);
  options.mini_batch_size = kSequences;
  options.max_epochs = 1;
  options.solver.initial_learning_rate = 1e-12;
  const auto by_hand = [&](const std::vector<int64_t>& of) {
    double sum = 0, steps = 0;
    const std::vector<Array> all = inputs();
    for (const int64_t i : of) {
      const Array& one = all[static_cast<size_t>(i)];
      const std::vector<float> y =
          mine.network.predict(Tensor::from(one.values, {1, one.shape[0], kChannels})).to_vector();
      for (size_t t = 0; t < y.size(); ++t, ++steps) {
        const float wanted = 0.5f * one.values[t * kChannels] + 0.3f;
        sum += std::abs(static_cast<double>(y[t] - wanted)) + 0.25;
      }
    }
    return sum / steps;
  };
  std::vector<int64_t> all;
  for (int64_t i = 0; i < kSequences; ++i) all.push_back(i);
  const double training = by_hand(all);
  const double validation = by_hand({2, 3, 5, 7, 11, 13, 17, 19, 23, 46});
  options.validation.frequency = 1;
  const TrainingResult result = train(mine.network, mine.data, options);
  EXPECT_NEAR(result.iterations.at(0).loss, training, 1e-5);
  EXPECT_NEAR(result.validations.at(0).loss, validation, 1e-5);
}

TEST(SequenceLosses, NameWhatIsWrong) {
  const auto message = [](Kind kind, const TrainingLoss& loss) {
    return message_of<InvalidArgument>([&] {
      TrainingProblem mine = problem(kind, false, false);
      mine.data.loss = loss;
      train(mine.network, mine.data, options_of(1));
    });
  };
  expect_says(message(Kind::regression, {squared, "by row"}), "one f32 for each observation");
  expect_says(message(Kind::classifier, {classified, "by step", true}),
              "one f32 for each step of the shard");
  const auto whole = [](Shard& shard) {
    return ops::squeeze(shard.forward(shard[0] * 2.0) - shard[1], {2});
  };
  expect_says(message(Kind::regression, {whole, "unknown", true}),
              "cannot know the lengths of the input");
  const auto label = [](Shard& shard) {
    return ops::astype(shard.lengths(1), DType::f32) + classified(shard);
  };
  expect_says(message(Kind::classifier, {label, "label"}), "is not a sequence");
  TrainingProblem vectors = testing::law_problem();
  vectors.data.loss = {classified, "vectors", true};
  expect_says(message_of<InvalidArgument>(
                  [&] { train(vectors.network, vectors.data, testing::law_options(1)); }),
              "is by step");
}

}  // namespace
}  // namespace lockstep::sequence_losses
