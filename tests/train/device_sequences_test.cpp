// Sequences on a device. A stand-in runs the CPU's kernels, so the bits are the CPU's.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/text/text.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/trainer.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/device_runs.h"
#include "tests/train/signals.h"
#include "tests/train/support.h"

namespace lockstep::device_sequences {
namespace {

using devicetest::FakeDevice;
using testing::expect_same;
using testing::Outcome;
using testing::signals;

constexpr int64_t kSequences = 52, kChannels = 3;

enum class Kind { classes, classes_of_steps, values_of_steps, values, text };

DatastorePtr data_of(Kind kind) {
  if (kind == Kind::text) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 400; ++i) tokens.push_back(i * i % 7);
    return token_windows(tokens_in_memory(std::move(tokens)),
                         Vocabulary::of({"a", "b", "c", "d", "e", "f", "g"}, TextUnits::words),
                         {.length = 9});
  }
  if (kind == Kind::classes) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSequences; ++i) labels.push_back(i % 3);
    return sequence_datastore(signals(kSequences, kChannels), {.labels = std::move(labels)});
  }
  const DatastorePtr inputs = sequence_datastore(signals(kSequences, kChannels));
  if (kind == Kind::values_of_steps)
    return with_targets(inputs, sequence_datastore(signals(kSequences, 2)));
  if (kind == Kind::values) {
    ArrayBlock targets{kSequences, {2}, {}};
    for (int64_t i = 0; i < 2 * kSequences; ++i) {
      targets.values.push_back(static_cast<float>(i % 5));
    }
    return with_targets(inputs, array_datastore(targets));
  }
  return with_targets(inputs, step_labels(testing::signal_tags(kSequences)));
}

Network network_of(Kind kind) {
  const auto input = [] {
    return sequence_input({.channels = kChannels, .normalization = "z-score"});
  };
  Network network;
  switch (kind) {
    case Kind::classes:
      network = Network{input(), gru({.units = 6, .output = "last", .bidirectional = true}),
                        fully_connected({.units = 3}), softmax()};
      break;
    case Kind::classes_of_steps:
      network = Network{input(), lstm({.units = 7, .carry_state = true}),
                        dropout({.probability = 0.3}), fully_connected({.units = 4}), softmax()};
      break;
    case Kind::values_of_steps:
      network =
          Network{input(), rnn({.units = 5, .carry_state = true}), fully_connected({.units = 2})};
      break;
    case Kind::values:
      network =
          Network{input(), lstm({.units = 4, .output = "last"}), fully_connected({.units = 2})};
      break;
    case Kind::text:
      network = Network{token_input({.vocabulary = 7}),
                        embedding({.vocabulary = 7, .units = 8}),
                        position_embedding({.positions = 9}),
                        transformer_block({.heads = 2, .causal = true, .dropout = 0.1}),
                        fully_connected({.units = 7}),
                        softmax()};
      break;
  }
  if (kind == Kind::values_of_steps || kind == Kind::values) {
    network.set_loss("mean_squared_error");
  }
  network.initialize(1);
  return network;
}

TrainingOptions options_for(const std::string& device, int64_t streams = 2) {
  TrainingOptions options = testing::small_options();
  options.mini_batch_size = 20;
  options.shards.size = 8;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.validation.frequency = 2;
  options.device = device;
  options.streams = streams;
  return options;
}

Outcome trained(Kind kind, const TrainingOptions& options, const TrainingControl& control = {}) {
  Network network = network_of(kind);
  TrainingData data;
  data.training = data.validation = data_of(kind);
  Outcome outcome{train(network, data, options, control), {}};
  for (const auto& p : network.parameters()) outcome.values.push_back(p.value.to_vector());
  return outcome;
}

class DeviceSequences : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, DeviceSequences,
                         ::testing::Values(Kind::classes, Kind::classes_of_steps,
                                           Kind::values_of_steps, Kind::values, Kind::text));

TEST_P(DeviceSequences, ComputeWhatThreadsCompute) {
  const FakeDevice fake;
  const Outcome cpu = trained(GetParam(), options_for("cpu"));
  for (const int64_t streams : {1, 2, 3}) {
    expect_same(trained(GetParam(), options_for("cuda:0", streams)), cpu);
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// Segments of sequences with states that are carried by row.
TEST_P(DeviceSequences, ComputeInSegmentsWhatThreadsCompute) {
  if (GetParam() != Kind::classes_of_steps && GetParam() != Kind::values_of_steps) {
    GTEST_SKIP() << "its layers need whole sequences";
  }
  const FakeDevice fake;
  const auto on = [](const std::string& device) {
    TrainingOptions options = options_for(device);
    options.data.sequence_length = 8;
    return options;
  };
  expect_same(trained(GetParam(), on("cuda:0")), trained(GetParam(), on("cpu")));
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST_P(DeviceSequences, StopAndResume) {
  const FakeDevice fake;
  const Outcome whole = trained(GetParam(), options_for("cuda:0"));
  const testing::TemporaryFolder folder;
  TrainingControl control{.checkpoint_folder = folder.path, .stop_after = 2};
  trained(GetParam(), options_for("cuda:0", 1), control);
  control.stop_after = 0;
  control.resume = true;
  const Outcome resumed = trained(GetParam(), options_for("cuda:0", 3), control);
  ASSERT_EQ(resumed.result.iterations.front().iteration, 3);
  EXPECT_EQ(resumed.values, whole.values);
  EXPECT_EQ(resumed.result.iterations.back().chain, whole.result.iterations.back().chain);
}

TEST_P(DeviceSequences, AreEvaluatedAsByThreads) {
  const FakeDevice fake;
  Network network = network_of(GetParam());
  const DatastorePtr data = data_of(GetParam());
  train(network, {.training = data}, options_for("cpu"));
  const EvaluationOptions options{.threads = 2};
  const Evaluation cpu = evaluate(network, data, options);
  network.to(parse_device("cuda:0"));
  const Evaluation there = evaluate(network, data, options);
  EXPECT_EQ(there.loss, cpu.loss);
  expect_same(there.accuracy, cpu.accuracy);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// An expression of outputs and targets by step is the network's loss.
TEST(DeviceSequenceExpressions, ComputeWhatThreadsCompute) {
  const FakeDevice fake;
  const auto with = [](TrainingOptions options) {
    Network network = network_of(Kind::values_of_steps);
    network.set_loss("mean(square(output - target)) + 0.1 * mean(abs(output))");
    TrainingData data;
    data.training = data.validation = data_of(Kind::values_of_steps);
    Outcome outcome{train(network, data, options), {}};
    for (const auto& p : network.parameters()) outcome.values.push_back(p.value.to_vector());
    return outcome;
  };
  const Outcome cpu = with(options_for("cpu"));
  EXPECT_NE(cpu.values, trained(Kind::values_of_steps, options_for("cpu")).values);
  for (const int64_t streams : {1, 4}) expect_same(with(options_for("cuda:0", streams)), cpu);
}

}  // namespace
}  // namespace lockstep::device_sequences
