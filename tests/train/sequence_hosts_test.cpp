// Trainings on sequences of different lengths by workers on two hosts: whole, and in segments.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/parallel/network.h"
#include "tests/train/hosts.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"

namespace lockstep::sequence_hosts {
namespace {

constexpr int64_t kSequences = 50;

// An observation of 1 to 29 steps, and a tag for each of them.
TrainingData tagged() {
  std::vector<Array> signals;
  StepLabels tags{.classes = {"low", "high", "even"}};
  for (int64_t i = 0; i < kSequences; ++i) {
    const int64_t steps = 1 + i * 13 % 29;
    Array one{{steps, 2}, {}};
    tags.labels.emplace_back();
    for (int64_t t = 0; t < steps; ++t) {
      one.values.push_back(0.1f * static_cast<float>((t * 7 + i * 5) % 23) - 1);
      one.values.push_back(0.05f * static_cast<float>((t * t + i) % 17));
      tags.labels.back().push_back(static_cast<int32_t>((t + i) % 3));
    }
    signals.push_back(std::move(one));
  }
  TrainingData data{.training = with_targets(sequence_datastore(std::move(signals)),
                                             step_labels(std::move(tags)))};
  data.validation = subset(data.training, {0, 3, 7, 12, 28, 49});
  return data;
}

TrainingProblem problem(testing::Failure failure) {
  testing::fail_here(std::move(failure));
  Network network{sequence_input({.channels = 2, .normalization = "z-score"}),
                  lstm({.units = 6, .carry_state = true}),
                  dropout({.probability = 0.2}),
                  lstm({.units = 5, .carry_state = true}),
                  fully_connected({.units = 3}),
                  softmax()};
  network.initialize(3);
  return {std::move(network), tagged()};
}

TrainingResult run(const TrainingOptions& options, const testing::Failure& failure = {},
                   TrainingControl control = {}) {
  const auto call = make_call<&problem>(failure);
  TrainingProblem own = problem({});
  return train(call, own.network, own.data, options, control);
}

TrainingOptions options_of(int64_t length) {
  TrainingOptions options = testing::law_options(1);
  options.mini_batch_size = 30;  // and a last one of 20
  options.shards.size = 4;
  options.data.sequence_length = length;
  return options;
}

class SequenceHosts : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(WholeAndInSegments, SequenceHosts, ::testing::Values(0, 8),
                         [](const auto& of) { return "Length" + std::to_string(of.param); });

TEST_P(SequenceHosts, OneDigestForAProcessAndTwoHosts) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const TrainingResult one = run(options_of(GetParam()));
  EXPECT_NE(one.iterations.back().digest, one.iterations.front().digest);
  for (const auto& hosts :
       {std::vector<std::string>{"localhost:1", "127.0.0.2:1"}, {"127.0.0.2:2", "127.0.0.3:1"}}) {
    TrainingOptions options = options_of(GetParam());
    testing::place_on_hosts(options, hosts);
    testing::expect_same_history(one, run(options));
  }
}

// Iteration 2 is the second segment of the first mini-batch where sequences are cut.
TEST_P(SequenceHosts, AWorkerThatIsLostThereAndAResumeChangeNoBit) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const TrainingResult one = run(options_of(GetParam()));
  TrainingOptions options = options_of(GetParam());
  testing::place_on_hosts(options, {"localhost:1", "127.0.0.2:2"});
  testing::Follower follower;
  const TrainingResult killed =
      run(options, {"backward", "kill", 1, 2, -1, "127.0.0.2"}, {.observers = {&follower}});
  ASSERT_EQ(testing::losses(follower).size(), 1u);
  EXPECT_EQ(testing::losses(follower)[0].host, "127.0.0.2");
  testing::expect_same_history(one, killed);

  const testing::TemporaryFolder folder;
  run(options, {}, {.checkpoint_folder = folder.path, .stop_after = 3});
  const TrainingResult rest =
      run(options_of(GetParam()), {}, {.checkpoint_folder = folder.path, .resume = true});
  EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain);
  EXPECT_EQ(rest.digest, one.digest);
}

}  // namespace
}  // namespace lockstep::sequence_hosts
