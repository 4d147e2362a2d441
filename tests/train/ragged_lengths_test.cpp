// What a long sequence among short ones costs in evaluations and trainings: time, memory, no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/loop/memory_estimate.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep::ragged {
namespace {

constexpr int64_t kChannels = 3;

Array signal(int64_t steps, int64_t which) {
  Array one{{steps, kChannels}, {}};
  for (int64_t k = 0; k < one.shape.elements(); ++k) {
    one.values.push_back(0.1f * static_cast<float>((k * 7 + which * 5 + k * k % 11) % 23) - 1);
  }
  return one;
}

std::vector<Array> signals(const std::vector<int64_t>& lengths) {
  std::vector<Array> all;
  for (size_t i = 0; i < lengths.size(); ++i) {
    all.push_back(signal(lengths[i], static_cast<int64_t>(i)));
  }
  return all;
}

// 150 lengths of 1 to 49 steps.
std::vector<int64_t> short_lengths() {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 150; ++i) all.push_back(1 + i * 29 % 49);
  return all;
}

enum class Kind { recurrent, by_step, attention, window };

Network network_of(Kind kind) {
  Network network;
  network.add(sequence_input({.channels = kChannels, .normalization = "none"}));
  if (kind == Kind::attention) {
    network.add(fully_connected({.units = 8}));
    network.add(position_embedding({.positions = 1000}));
    network.add(transformer_block({.heads = 2}));
  } else if (kind == Kind::window) {
    network.add(convolution1d({.filters = 6, .kernel = 3, .causal = true}));
    network.add(relu());
  } else {
    network.add(lstm({.units = 7, .bidirectional = true}));
    network.add(layer_normalization());
  }
  if (kind != Kind::by_step) network.add(gru({.units = 5, .output = "last"}));
  network.add(fully_connected({.units = 4}));
  network.add(softmax());
  network.initialize(2);
  return network;
}

std::string name_of_kind(Kind kind) {
  const char* const names[] = {"Recurrent", "ByStep", "Attention", "Window"};
  return names[static_cast<size_t>(kind)];
}

class Ragged : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, Ragged,
                         ::testing::Values(Kind::recurrent, Kind::by_step, Kind::attention,
                                           Kind::window),
                         [](const auto& of) { return name_of_kind(of.param); });

// The outputs of each sequence, as one list.
std::vector<std::vector<float>> outputs_of(Kind kind, const std::vector<int64_t>& lengths,
                                           int threads) {
  Network network = network_of(kind);
  const std::vector<float> all =
      predict(network, sequence_datastore(signals(lengths)), {.threads = threads}).to_vector();
  std::vector<std::vector<float>> found;
  auto next = all.begin();
  for (const int64_t steps : lengths) {
    const auto count = 4 * (kind == Kind::by_step ? steps : 1);
    found.emplace_back(next, next + count);
    next += count;
  }
  EXPECT_EQ(next, all.end());
  return found;
}

// Not where they are, what is next to them, nor the room that their plans have.
TEST_P(Ragged, NoBitDependsOnOtherSequences) {
  const std::vector<int64_t> some = short_lengths();
  const auto alone = outputs_of(GetParam(), some, 1);
  std::vector<int64_t> with = some;
  for (const int64_t steps : {700, 130, 64, 65}) with.push_back(steps);
  const auto among = outputs_of(GetParam(), with, 3);
  for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(alone[i], among[i]) << i;
  Network network = network_of(GetParam());
  for (size_t i = 0; i < with.size(); i += i < some.size() ? 17 : 1) {
    const Array x = signal(with[i], static_cast<int64_t>(i));
    // In a plan for the next of four sizes for each power of two, and for all steps of the tensor.
    const Tensor one = Tensor::from(x.values, {1, with[i], kChannels});
    ASSERT_EQ(network.predict(one).to_vector(), among[i]) << i;
    EXPECT_EQ(network.forward({one}).to_vector().size(), among[i].size());
  }
}

EvaluatedData evaluated(const std::vector<int64_t>& lengths) {
  return {.images = std::make_shared<const ExampleCache>(sequence_datastore(signals(lengths)),
                                                         Shape{kChannels}, size_t{64} << 20),
          .compares = false};
}

// Steps that plans compute, valid or not.
int64_t computed_steps(const std::vector<int64_t>& lengths) {
  Network network = network_of(Kind::by_step);
  const EvaluatedBatches batches(network, evaluated(lengths), 1);
  int64_t steps = 0;
  std::vector<int64_t> seen;
  for (int64_t b = 0; b < batches.count(); ++b) {
    for (const EvaluatedPart& part : batches.parts(batches.rows(b))) {
      EXPECT_LE(static_cast<int64_t>(part.observations.size()), part.shape.rows);
      for (const int64_t i : part.observations) {
        EXPECT_LE(lengths[static_cast<size_t>(i)], part.shape.steps.at(0));
      }
      seen.insert(seen.end(), part.observations.begin(), part.observations.end());
      steps += part.shape.rows * part.shape.steps.at(0);
    }
  }
  std::ranges::sort(seen);
  EXPECT_EQ(seen.size(), lengths.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
  return steps;
}

TEST(RaggedEvaluation, ALongSequenceCostsTheOthersNothing) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 512; ++i) lengths.push_back(5 + i * 29 % 46);
  const int64_t before = computed_steps(lengths);
  int64_t valid = 0;
  for (const int64_t steps : lengths) valid += steps;
  EXPECT_LT(before, 3 * valid);
  lengths[200] = 3000;
  EXPECT_LT(computed_steps(lengths), before + 4 * 4096);
}

TEST(RaggedEvaluation, HasAPlanForEachPowerOfTwo) {
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 700; ++i) lengths.push_back(i);
  Network network = network_of(Kind::by_step);
  EXPECT_EQ(EvaluatedBatches(network, evaluated(lengths), 1).shapes().size(), 8u);  // 8, 16, ...
  // The room is that of the longest at most.
  EXPECT_EQ(EvaluatedBatches(network, evaluated({600, 520}), 1).shapes().at(0).steps.at(0),
            steps_capacity(600));
}

size_t bytes_of_evaluation(const std::vector<int64_t>& lengths, int threads) {
  Network network = network_of(Kind::by_step);
  ThreadPool pool(threads);
  const size_t before = allocator_statistics().in_use;
  Evaluator evaluator(network, evaluated(lengths), pool);
  evaluator.prepare();
  return allocator_statistics().in_use - before;
}

// The plans of all lengths share the memory of a thread.
TEST(RaggedEvaluation, NeedsTheMemoryOfItsLongestSequence) {
  std::vector<int64_t> lengths = short_lengths();
  lengths.push_back(3000);
  for (int64_t steps = 64; steps < 3000; steps *= 2) lengths.push_back(steps);
  const size_t longest = bytes_of_evaluation({3000}, 1);
  EXPECT_LT(bytes_of_evaluation(lengths, 1), longest + (size_t{1} << 20));
  EXPECT_LT(bytes_of_evaluation(lengths, 2), 2 * longest + (size_t{2} << 20));
}

// Lengths are those of nearly all plans. With a loss of the user the network runs in its own plans.
Tensor classified(Shard& shard) {
  return ops::softmax_cross_entropy(shard.forward(shard[0], {.outputs = {"fully_connected_1"}}),
                                    shard[1]);
}

TEST(RaggedMemory, ATrainingTakesWhatItsEstimateSays) {
  std::vector<int64_t> lengths, labels;
  for (int64_t i = 0; i < 240; ++i) {
    lengths.push_back(5 + i * 131 % 596);
    labels.push_back(i % 4);
  }
  Network network{sequence_input({.channels = kChannels, .normalization = "none"}),
                  lstm({.units = 40, .output = "last"}), fully_connected({.units = 4}), softmax()};
  network.initialize(1);
  TrainingData data{.training = sequence_datastore(signals(lengths), {.labels = labels})};
  data.validation = subset(data.training, {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233});
  for (const int64_t threads : {1, 3}) {
    TrainingOptions options{.max_epochs = 4, .mini_batch_size = 24, .threads = threads};
    options.device = "cpu";
    const MemoryEstimate estimate = estimate_memory(network, data, options);
    const auto told = static_cast<double>(estimate.values + estimate.gradients + estimate.shards);
    for (const bool own : {false, true}) {
      release_cached_memory();
      const size_t before = allocator_statistics().in_use;
      size_t most = 0;
      testing::Recorder recorder;
      recorder.on_iteration = [&](const IterationRecord&) {
        most = std::max(most, allocator_statistics().in_use - before);
      };
      Network trained = network.clone();
      data.loss = own ? TrainingLoss{classified, "classified"} : TrainingLoss();
      train(trained, data, options, {.observers = {&recorder}});
      EXPECT_LT(static_cast<double>(most), 1.25 * told) << threads << own;
      EXPECT_GT(static_cast<double>(most), 0.6 * told) << threads << own;
    }
  }
}

}  // namespace
}  // namespace lockstep::ragged
