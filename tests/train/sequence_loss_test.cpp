// Losses of users on sequences of different lengths: steps after the ends do not count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/same_history.h"
#include "tests/train/signals.h"
#include "tests/train/support.h"

namespace lockstep::sequence_losses {
namespace {

using devicetest::FakeDevice;
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

TrainingOptions on_device(int64_t streams) {
  TrainingOptions options = options_of(2);
  options.device = "cuda:0";
  options.streams = streams;
  return options;
}

TrainingResult run(Kind kind, const TrainingOptions& options, bool own = true, bool carries = false,
                   const TrainingControl& control = {}) {
  const auto call = make_call<&problem>(kind, own, carries);
  TrainingProblem mine = problem(kind, own, carries);
  return train(call, mine.network, mine.data, options, control);
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

TEST_P(SequenceLoss, OneDigestForThreadsAndStreams) {
  const FakeDevice fake;
  const auto with_metrics = [](TrainingOptions options) {
    options.validation.metrics = {GetParam() == Kind::regression ? "rmse" : "f1"};
    return options;
  };
  const TrainingResult one = run(GetParam(), with_metrics(options_of(1)));
  ASSERT_EQ(one.validations.at(0).metrics.size(), 1u);
  testing::expect_same_history(one, run(GetParam(), with_metrics(options_of(2))));
  for (const int64_t streams : {1, 2, 4}) {
    SCOPED_TRACE(streams);
    testing::Recorder recorder;
    const TrainingResult there =
        run(GetParam(), with_metrics(on_device(streams)), true, false, {.observers = {&recorder}});
    testing::expect_same_results(one, there);
    const auto compared = [](const std::string& text) {
      return text.find("on cuda:0 agrees with the CPU's") != std::string::npos;
    };
    EXPECT_EQ(std::ranges::count_if(recorder.notices, compared), 1);
  }
  TrainingOptions checked = on_device(3);
  checked.shards.check_frequency = 1;
  EXPECT_EQ(run(GetParam(), checked).digest, one.digest);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST_P(SequenceLoss, StopsAndResumesOnADevice) {
  const FakeDevice fake;
  const TrainingResult whole = run(GetParam(), on_device(2));
  EXPECT_EQ(whole.digest, run(GetParam(), options_of(1)).digest);
  const testing::TemporaryFolder folder;
  run(GetParam(), on_device(1), true, false, {.checkpoint_folder = folder.path, .stop_after = 3});
  const TrainingResult resumed = run(GetParam(), on_device(4), true, false,
                                     {.checkpoint_folder = folder.path, .resume = true});
  ASSERT_EQ(resumed.iterations.front().iteration, 4);
  EXPECT_EQ(resumed.digest, whole.digest);
  EXPECT_EQ(resumed.iterations.back().chain, whole.iterations.back().chain);
}

// A sum over the valid steps of the mini-batch is divided by their number when it is finished.
TEST(SequenceLosses, RunAheadOnADeviceIfTheyAreByRow) {
  const auto sums = [](Shard& shard) {
    const Tensor each = distance(shard);
    return ops::sum(each * ops::step_mask(shard.lengths(0), each.shape()[1]), {1});
  };
  const auto trained = [](const TrainingLoss& loss, TrainingOptions options) {
    options.mini_batch_size = 10;
    options.max_epochs = 1;
    options.shards = {.size = 3, .check_frequency = 0};
    TrainingProblem mine = problem(Kind::regression, false, false);
    mine.data.loss = loss;
    mine.data.validation = nullptr;
    return train(mine.network, mine.data, options);
  };
  const FakeDevice fake;
  for (const bool by_step : {false, true}) {
    const TrainingLoss loss =
        by_step ? TrainingLoss{distance, "distance", true} : TrainingLoss{sums, "sums"};
    const int marks = fake.marks();
    const TrainingResult there = trained(loss, on_device(2));
    EXPECT_EQ(there.iterations.size(), 5u);
    EXPECT_EQ(fake.marks() - marks, by_step ? 0 : 5);
    testing::expect_same_results(there, trained(loss, options_of(1)));
  }
}

TEST(SequenceLosses, SegmentsCarryStates) {
  const FakeDevice fake;
  for (const Kind kind : {Kind::tagger, Kind::regression}) {
    TrainingOptions options = options_of(1);
    options.data.sequence_length = 8;
    const TrainingResult one = run(kind, options, true, true);
    EXPECT_GT(one.iterations.size(), 2u * 3);
    options.threads = 3;
    testing::expect_same_history(one, run(kind, options, true, true));
    options.workers.count = 2;
    testing::expect_same_history(one, run(kind, options, true, true));
    for (const int64_t streams : {1, 3}) {
      TrainingOptions there = on_device(streams);
      there.data.sequence_length = 8;
      testing::expect_same_results(one, run(kind, there, true, true));
    }
    const TrainingResult network = run(kind, options, false, true);
    ASSERT_EQ(one.iterations.size(), network.iterations.size());
    for (size_t i = 0; i < one.iterations.size(); ++i) {
      EXPECT_NEAR(one.iterations[i].loss, network.iterations[i].loss, 1e-5) << i;
    }
  }
}

// The statistics of steps come back from the device, shard by shard.
TEST(SequenceLosses, OfNormalizedStepsOnADevice) {
  const FakeDevice fake;
  const auto trained = [](const TrainingOptions& options) {
    TrainingProblem mine = problem(Kind::regression, true, false);
    mine.network =
        Network{sequence_input({.channels = kChannels, .normalization = "none"}),
                lstm({.units = 5}), batch_normalization(), fully_connected({.units = 1})};
    mine.network.set_loss("mean_squared_error");
    mine.network.initialize(4);
    const TrainingResult result = train(mine.network, mine.data, options);
    EXPECT_NE(mine.network.state_value("batch_normalization_1.mean").to_vector(),
              std::vector<float>(5, 0.0f));
    return result;
  };
  const TrainingResult one = trained(options_of(1));
  testing::expect_same_history(one, trained(options_of(3)));
  for (const int64_t streams : {1, 4}) {
    testing::expect_same_results(one, trained(on_device(streams)));
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
  const FakeDevice fake;
  const auto message = [](Kind kind, const TrainingLoss& loss) {
    const auto with = [&](const TrainingOptions& options) {
      return message_of<InvalidArgument>([&] {
        TrainingProblem mine = problem(kind, false, false);
        mine.data.loss = loss;
        train(mine.network, mine.data, options);
      });
    };
    const std::string found = with(options_of(1));
    EXPECT_EQ(with(on_device(2)), found);
    return found;
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

// A mini-batch of a loop: sequences with zeros after their ends, targets, and lengths.
struct Padded {
  Tensor x, target, lengths;
};
Padded padded(int64_t first, int64_t count) {
  int64_t steps = 0;
  for (int64_t i = first; i < first + count; ++i) {
    steps = std::max(steps, testing::signal_steps(i));
  }
  const Padded batch{Tensor::zeros({count, steps, kChannels}), Tensor::zeros({count, steps, 1}),
                     Tensor(Shape{count}, DType::i32)};
  const std::vector<Array> all = inputs();
  for (int64_t i = 0; i < count; ++i) {
    const Array& one = all[static_cast<size_t>(first + i)];
    std::ranges::copy(one.values, batch.x.data<float>() + i * steps * kChannels);
    for (int64_t t = 0; t < one.shape[0]; ++t) {
      batch.target.data<float>()[i * steps + t] =
          0.5f * one.values[static_cast<size_t>(t * kChannels)] + 0.3f;
    }
    batch.lengths.data<int32_t>()[i] = static_cast<int32_t>(one.shape[0]);
  }
  return batch;
}

// The mean over the valid steps of each sequence.
Tensor mean_of_steps(Shard& shard) {
  const Tensor error = shard.forward(shard[0], {.lengths = {shard[2]}}) - shard[1];
  const Tensor each = ops::squeeze(error * error, {2});
  const Tensor mask = ops::step_mask(shard[2], each.shape()[1]);
  return ops::sum(each * mask, {1}) / ops::sum(mask, {1});
}

struct LoopEnd {
  std::vector<double> losses;
  std::vector<std::vector<float>> values;
  bool operator==(const LoopEnd&) const = default;
};

struct LoopSettings {
  int threads = 1;
  std::vector<size_t> there = {};  // tensors of the mini-batch that lie on the device already
  bool carries = false;            // states, from mini-batch to mini-batch
  int64_t rows = 10;               // of these states; 0: they are not made
  ShardLoss loss = mean_of_steps;
};
LoopEnd trained_in_loop(const Device& device, const LoopSettings& settings) {
  Network network = network_of(Kind::regression, settings.carries);
  network.to(device);
  LoopEnd end;
  {
    ShardGroup group(network, {.threads = settings.threads, .shard_size = 3, .check_frequency = 2});
    if (settings.carries && settings.rows > 0) network.make_row_states(settings.rows);
    SgdmState state;
    for (int64_t iteration = 1; iteration <= 4; ++iteration) {
      const Padded batch = padded(10 * iteration - 10, 10);
      std::vector<Tensor> tensors{batch.x, batch.target, batch.lengths};
      for (const size_t i : settings.there) tensors[i] = tensors[i].to(device);
      const auto [value, gradients] =
          sharded_value_and_gradient(settings.loss, tensors, group, iteration);
      end.losses.push_back(value);
      sgdm_update(network, gradients, state, {.learning_rate = 0.05});
    }
  }
  for (const auto& p : network.parameters()) end.values.push_back(p.value.to_vector());
  return end;
}

TEST(SequenceLoops, HaveOneResultForThreadsAndADevice) {
  const LoopEnd one = trained_in_loop({}, {});
  EXPECT_LT(one.losses.back(), one.losses.front());
  EXPECT_EQ(trained_in_loop({}, {.threads = 2}), one);
  const FakeDevice fake;
  for (const std::vector<size_t>& there : {std::vector<size_t>{}, {0, 1, 2}, {0}, {2}, {0, 1}}) {
    EXPECT_EQ(trained_in_loop(fake, {.there = there}), one) << there.size();
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// Where the lengths came from the CPU, the host does not wait for the device to read them.
TEST(SequenceLoops, LengthsOnADeviceAreWaitedFor) {
  const auto waits = [](const std::vector<size_t>& there) {
    const FakeDevice fake;
    trained_in_loop(fake, {.there = there});
    return fake.counts().waits;
  };
  const int64_t shards = 4 * 4;
  EXPECT_GE(waits({2}), waits({}) + shards);
}

TEST(SequenceLoops, CarryStatesOnADevice) {
  const LoopEnd one = trained_in_loop({}, {.carries = true});
  EXPECT_NE(trained_in_loop({}, {.carries = true, .rows = 0}), one);
  EXPECT_EQ(trained_in_loop({}, {.threads = 2, .carries = true}), one);
  const FakeDevice fake;
  EXPECT_EQ(trained_in_loop(fake, {.carries = true}), one);
}

TEST(SequenceLoops, NameLengthsThatDoNotFit) {
  const FakeDevice fake;
  const auto message = [](const Device& device, const Tensor& lengths) {
    return message_of<InvalidArgument>([&] {
      trained_in_loop(device, {.loss = [&](Shard& shard) {
                        const Tensor own = lengths.to(shard[0].device());
                        return ops::sum(shard.forward(shard[0], {.lengths = {own}}), {1, 2});
                      }});
    });
  };
  const std::vector<int32_t> wrong{1, 100, 2}, negative{1, 2, -1}, two{1, 2};
  const std::pair<Tensor, const char*> all[] = {
      {Tensor::from(std::span(wrong), {3}), "but its length is given as 100"},
      {Tensor::from(std::span(negative), {3}), "but its length is given as -1"},
      {Tensor::from(std::span(two), {2}), "must be 3 numbers of i32"},
      {Tensor::zeros({3}), "must be 3 numbers of i32"}};
  for (const auto& one : all) {
    const std::string here = message({}, one.first);
    expect_says(here, one.second);
    EXPECT_EQ(message(fake, one.first), here);
  }
}

}  // namespace
}  // namespace lockstep::sequence_losses
