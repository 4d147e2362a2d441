// Trainings with batch normalization of sequences, and the law with it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"
#include "tests/train/signals.h"
#include "tests/train/support.h"

namespace lockstep::normalized_steps {
namespace {

using testing::message_of;

constexpr int64_t kSequences = 83, kChannels = 3;

// A result for each sequence, or for each step, which can be cut.
enum class Kind { classifier, tagger };

// Signals of 2 to 30 steps, an even number, so that no segment of even length has a single step.
std::vector<Array> even_signals() {
  std::vector<Array> all = testing::signals(kSequences, kChannels);
  for (Array& one : all) {
    if (one.shape[0] % 2 == 0) continue;
    one.shape = Shape{one.shape[0] + 1, kChannels};
    one.values.insert(one.values.end(), {0.5f, -0.25f, 1});
  }
  return all;
}

StepLabels even_tags() {
  StepLabels tags = testing::signal_tags(kSequences);
  for (auto& labels : tags.labels) labels.resize((labels.size() + 1) / 2 * 2);
  return tags;
}

Network network_of(Kind kind) {
  Network network;
  network.add(sequence_input({.channels = kChannels, .normalization = "z-score"}));
  network.add(batch_normalization({.momentum = 0.3}), "first");
  network.add(gru({.units = 6, .carry_state = kind == Kind::tagger}));
  network.add(batch_normalization(), "second");
  network.add(relu());
  if (kind == Kind::classifier) network.add(last_step());
  network.add(fully_connected({.units = 4}));
  if (kind == Kind::classifier) network.add(batch_normalization(), "of_vectors");
  network.add(softmax());
  network.initialize(3);
  return network;
}

TrainingProblem problem_of(Kind kind) {
  TrainingData data;
  if (kind == Kind::classifier) {
    ImageLabels labels{.classes = {"a", "b", "c", "d"}};
    for (int64_t i = 0; i < kSequences; ++i) labels.labels.push_back(i * 3 % 4);
    data.training = sequence_datastore(even_signals(), labels);
  } else {
    data.training = with_targets(sequence_datastore(even_signals()), step_labels(even_tags()));
  }
  data.validation = subset(data.training, {2, 3, 5, 7, 11, 13, 17, 19, 23, 80});
  return {network_of(kind), data};
}

TrainingProblem failing(Kind kind, testing::Failure failure) {
  testing::fail_here(std::move(failure));
  return problem_of(kind);
}

TrainingOptions options_of(int64_t threads, int64_t sequence_length = 0) {
  TrainingOptions options = testing::law_options(threads);
  options.mini_batch_size = 30;  // and a last one of 23
  options.solver.initial_learning_rate = 0.02;
  options.data.sequence_length = sequence_length;
  return options;
}

TrainingResult run(Kind kind, const TrainingOptions& options, TrainingControl control = {},
                   const testing::Failure& failure = {}) {
  const auto call = make_call<&failing>(kind, failure);
  TrainingProblem problem = problem_of(kind);
  return train(call, problem.network, problem.data, options, control);
}

class NormalizedSteps : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, NormalizedSteps, ::testing::Values(Kind::classifier, Kind::tagger),
                         [](const auto& of) {
                           return std::string(of.param == Kind::classifier ? "Classifier"
                                                                           : "Tagger");
                         });

TEST_P(NormalizedSteps, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(GetParam(), options_of(1));
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(GetParam(), options_of(threads)));
  }
  for (const int64_t workers : {2, 3}) {
    TrainingOptions options = options_of(2);
    options.workers.count = workers;
    testing::expect_same_history(one, run(GetParam(), options));
  }
  TrainingOptions checked = options_of(2);
  checked.shards.check_frequency = 1;
  EXPECT_EQ(run(GetParam(), checked).digest, one.digest);
}

TEST_P(NormalizedSteps, ADeathAndAResumeChangeNoBit) {
  const TrainingResult one = run(GetParam(), options_of(1));
  TrainingOptions options = options_of(1);
  options.workers.count = 3;
  testing::Follower follower;
  const TrainingResult killed =
      run(GetParam(), options, {.observers = {&follower}}, {"backward", "kill", 2, 4, -1});
  EXPECT_EQ(testing::losses(follower).size(), 1u);
  testing::expect_same_history(one, killed);
  const testing::TemporaryFolder folder;
  options = options_of(2);
  options.checkpoints.frequency = 2;
  run(GetParam(), options, {.checkpoint_folder = folder.path, .stop_after = 5});
  const TrainingResult rest =
      run(GetParam(), options, {.checkpoint_folder = folder.path, .resume = true});
  EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain);
}

TEST_P(NormalizedSteps, ADeviceGivesTheSame) {
  const devicetest::FakeDevice fake;
  const auto with = [](const char* device) {
    TrainingProblem problem = problem_of(GetParam());
    TrainingOptions options = options_of(2);
    options.max_epochs = 1;
    options.device = device;
    options.batch_normalization_statistics = BatchNormalizationStatistics::population;
    return train(problem.network, problem.data, options).network_digest;
  };
  EXPECT_EQ(with("cuda:0"), with("cpu"));
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// The statistics of a segment are those of its steps.
TEST(NormalizedSegments, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(Kind::tagger, options_of(1, 10));
  EXPECT_GT(one.iterations.size(), 9u);
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(Kind::tagger, options_of(threads, 10)));
  }
  TrainingOptions options = options_of(2, 10);
  options.workers.count = 2;
  testing::expect_same_history(one, run(Kind::tagger, options));
}

struct Moments {
  std::vector<double> mean, variance;
};

// Of each channel over all steps of what `network` makes of the signals, in double.
Moments moments_of(Network& network) {
  std::vector<std::vector<double>> values;
  for (const Array& one : even_signals()) {
    const Tensor x = Tensor::from(std::span<const float>(one.values), {1, one.shape[0], kChannels});
    const Tensor y = network.predict(x);
    const auto channels = static_cast<size_t>(y.shape()[2]);
    values.resize(channels);
    const std::vector<float> numbers = y.to_vector();
    for (size_t k = 0; k < numbers.size(); ++k) {
      values[k % channels].push_back(static_cast<double>(numbers[k]));
    }
  }
  Moments moments;
  for (const auto& channel : values) {
    double mean = 0, variance = 0;
    for (const double value : channel) mean += value;
    mean /= static_cast<double>(channel.size());
    for (const double value : channel) variance += (value - mean) * (value - mean);
    moments.mean.push_back(mean);
    moments.variance.push_back(variance / static_cast<double>(channel.size()));
  }
  return moments;
}

// The layers before `end`, with the values that `from` has.
Network before(Network& from, const std::string& end) {
  Network part;
  for (const LayerNode& node : from.layers()) {
    if (node.name == end) break;
    part.add(node.layer, node.name, node.inputs);
  }
  part.initialize(1);
  for (const auto& l : part.parameters()) l.value.copy_from(from.parameter(l.name));
  for (const auto& s : part.state()) s.value.copy_from(from.state_value(s.name));
  return part;
}

void expect_moments(const Network& network, const std::string& layer, const Moments& e,
                    double old_mean, double old_variance, double momentum) {
  const auto mean = network.state_value(layer + ".mean").to_vector(),
             variance = network.state_value(layer + ".variance").to_vector();
  ASSERT_EQ(mean.size(), e.mean.size());
  for (size_t c = 0; c < mean.size(); ++c) {
    const double wanted = (1 - momentum) * old_mean + momentum * e.mean[c];
    EXPECT_NEAR(mean[c], wanted, 5e-6 * std::sqrt(e.variance[c])) << layer << " " << c;
    EXPECT_NEAR(variance[c], (1 - momentum) * old_variance + momentum * e.variance[c],
                1e-5 * e.variance[c] + 1e-7)
        << layer << " " << c;
  }
}

// Shards count by their steps, not by their sequences.
TEST(NormalizedStepsStatistics, FollowAllStepsOfAMiniBatch) {
  TrainingProblem problem = problem_of(Kind::tagger);
  TrainingOptions options = options_of(2);
  options.mini_batch_size = kSequences;
  options.max_epochs = 1;
  options.solver.initial_learning_rate = 1e-9;
  train(problem.network, {.training = problem.data.training}, options);
  Network first = before(problem.network, "first");
  expect_moments(problem.network, "first", moments_of(first), 0, 1, 0.3);
}

TEST(NormalizedStepsStatistics, OfThePopulationAreThoseOfAllSteps) {
  for (const Kind kind : {Kind::classifier, Kind::tagger}) {
    TrainingOptions options = options_of(2);
    options.batch_normalization_statistics = BatchNormalizationStatistics::population;
    options.max_epochs = 1;
    TrainingProblem problem = problem_of(kind);
    const TrainingResult result = train(problem.network, problem.data, options);
    ASSERT_TRUE(result.population);
    EXPECT_EQ(result.population->layers, kind == Kind::classifier ? 3 : 2);
    for (const char* layer : {"first", "second"}) {
      Network part = before(problem.network, layer);
      expect_moments(problem.network, layer, moments_of(part), 0, 0, 1);
    }
    for (const int64_t threads : {1, 5}) {
      TrainingProblem again = problem_of(kind);
      options.threads = threads;
      EXPECT_EQ(train(again.network, again.data, options).network_digest, result.network_digest);
    }
  }
}

// Two sequences of 4 steps, and four of 1 step.
TrainingProblem of_single_steps() {
  std::vector<Array> all;
  ImageLabels labels{.classes = {"a", "b"}};
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t steps = i < 2 ? 4 : 1;
    all.push_back({{steps, 2}, std::vector<float>(static_cast<size_t>(steps * 2), 0.5f)});
    all.back().values[0] = static_cast<float>(i);
    labels.labels.push_back(i % 2);
  }
  Network network{sequence_input({.channels = 2, .normalization = "none"}), batch_normalization(),
                  last_step(), fully_connected({.units = 2}), softmax()};
  network.initialize(1);
  return {std::move(network), {.training = sequence_datastore(std::move(all), labels)}};
}

TEST(NormalizedStepsAlone, AShardOfOneStepIsRefusedByItsObservation) {
  const auto refusal = [](int64_t workers) {
    TrainingProblem problem = of_single_steps();
    TrainingOptions options;
    options.mini_batch_size = 6;
    options.shards.size = 1;
    options.data.shuffle = Shuffle::never;
    options.max_epochs = 1;
    options.threads = 2;
    options.workers.count = workers;
    const auto learned = [&] {
      std::vector<float> all;
      for (const auto& p : problem.network.parameters()) {
        const std::vector<float> values = p.value.to_vector();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    problem.network.initialize(static_cast<uint64_t>(options.seed));
    const std::vector<float> before = learned();
    const std::string said = message_of<InvalidArgument>(
        [&] { train(make_call<&of_single_steps>(), problem.network, problem.data, options); });
    EXPECT_EQ(learned(), before) << "an update came before the refusal";
    return said;
  };
  for (const int64_t workers : {0, 2}) {
    testing::expect_says(refusal(workers),
                         "the layer `batch_normalization_1` would normalize single numbers, which "
                         "gives 0 whatever they are: observation 2 of its mini-batch, a shard, has "
                         "one valid step in all");
  }
}

// In loops of users, too.
TEST(NormalizedStepsAlone, AShardOfALoopIsRefused) {
  TrainingProblem problem = of_single_steps();
  ShardGroup group(problem.network, {.threads = 2, .shard_size = 2});
  const Tensor x = Tensor::full({4, 3, 2}, 0.5f);
  const std::vector<int32_t> lengths{3, 1, 0, 1};
  const auto step = [&](const std::vector<int32_t>& of) {
    sharded_value_and_gradient(
        [](Shard& shard) {
          return ops::sum(shard.forward(shard[0], {.lengths = {shard[1]}}), {1});
        },
        {x, Tensor::from(std::span(of), {4})}, group, 1);
  };
  testing::expect_says(message_of<InvalidArgument>([&] { step(lengths); }),
                       "observations 2 to 3 of the mini-batch, a shard, have one valid step");
  step({3, 1, 0, 0});
}

}  // namespace
}  // namespace lockstep::normalized_steps
