// Trainings on sequences of different lengths, and the law with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"
#include "tests/train/signals.h"
#include "tests/train/support.h"

namespace lockstep::sequence_training {
namespace {

using testing::message_of;

// The running sum over the steps.
struct Summed {
  static constexpr const char* kType = "summed";
  static constexpr const char* kHelp = "the sum over the steps until now";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder&, Value x) const { return ops::cumsum(x, 1) * 0.05; }
};

// The sum over the valid steps.
struct Total {
  static constexpr const char* kType = "total";
  static constexpr const char* kHelp = "the sum over the steps";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value length = ops::astype(layer.lengths(x), DType::f32);
    const Value step = ops::arange(length, 0, static_cast<double>(x.shape()[1]));
    const Value valid = ops::expand_dims(ops::less(step, ops::expand_dims(length, 1)), 2);
    return ops::sum(ops::where(valid, x, 0), {1}) * 0.05;
  }
};

constexpr int64_t kChannels = 3, kSequences = 83;

std::vector<Array> sequences() { return testing::signals(kSequences, kChannels); }

enum class Kind { classifier, tagger, regression };

Network network_of(Kind kind) {
  Network network;
  network.add(sequence_input({.channels = kChannels, .normalization = "none"}));
  network.add(fully_connected({.units = 7}));
  network.add(tanh());
  network.add(custom_layer(Summed{}));
  network.add(dropout({.probability = 0.2}));
  if (kind == Kind::classifier) network.add(custom_layer(Total{}));
  network.add(fully_connected({.units = kind == Kind::regression ? 2 : 4}));
  if (kind == Kind::regression) {
    network.set_loss("mean_squared_error");
  } else {
    network.add(softmax());
  }
  network.initialize(3);
  return network;
}

DatastorePtr data_of(Kind kind) {
  if (kind == Kind::classifier) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSequences; ++i) labels.push_back(i * 3 % 4);
    return sequence_datastore(sequences(), {.labels = labels});
  }
  if (kind == Kind::tagger) {
    return with_targets(sequence_datastore(sequences()),
                        step_labels(testing::signal_tags(kSequences)));
  }
  std::vector<Array> targets;
  for (const Array& one : sequences()) {
    Array target{{one.shape[0], 2}, {}};
    for (int64_t t = 0; t < one.shape[0]; ++t) {
      target.values.push_back(one.values[static_cast<size_t>(t * kChannels)]);
      target.values.push_back(0.5f);
    }
    targets.push_back(std::move(target));
  }
  return with_targets(sequence_datastore(sequences()), sequence_datastore(std::move(targets)));
}

TrainingProblem problem_of(Kind kind) {
  TrainingData data{.training = data_of(kind)};
  data.validation = subset(data.training, {2, 3, 5, 7, 11, 13, 17, 19, 23, 80});
  return {network_of(kind), data};
}

TrainingProblem failing_sequences(Kind kind, testing::Failure failure) {
  testing::fail_here(std::move(failure));
  return problem_of(kind);
}

TrainingOptions sequence_options(int64_t threads) {
  TrainingOptions options = testing::law_options(threads);
  options.mini_batch_size = 30;  // and a last one of 23
  options.solver.initial_learning_rate = 0.02;
  return options;
}

TrainingResult run(Kind kind, const TrainingOptions& options, TrainingControl control = {},
                   const testing::Failure& failure = {}) {
  const auto call = make_call<&failing_sequences>(kind, failure);
  TrainingProblem problem = problem_of(kind);
  return train(call, problem.network, problem.data, options, control);
}

class SequenceTraining : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, SequenceTraining,
                         ::testing::Values(Kind::classifier, Kind::tagger, Kind::regression),
                         [](const auto& of) {
                           return std::string(of.param == Kind::classifier ? "Classifier"
                                              : of.param == Kind::tagger   ? "Tagger"
                                                                           : "Regression");
                         });

TEST_P(SequenceTraining, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(GetParam(), sequence_options(1));
  if (GetParam() == Kind::regression) {  // the labels are not learnable
    EXPECT_LT(one.iterations.back().loss, one.iterations.front().loss);
  }
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(GetParam(), sequence_options(threads)));
  }
  for (const auto& load : {std::vector<double>{1, 1}, {3, 1}, {1, 0, 1}}) {
    TrainingOptions options = sequence_options(2);
    options.workers.count = static_cast<int64_t>(load.size());
    options.workers.load = load;
    testing::expect_same_history(one, run(GetParam(), options));
  }
  TrainingOptions checked = sequence_options(2);
  checked.shards.check_frequency = 1;
  EXPECT_EQ(run(GetParam(), checked).digest, one.digest);
}

TEST_P(SequenceTraining, ADeathAndAResumeChangeNoBit) {
  const TrainingResult one = run(GetParam(), sequence_options(1));
  TrainingOptions options = sequence_options(1);
  options.workers.count = 3;
  testing::Follower follower;
  const TrainingResult killed =
      run(GetParam(), options, {.observers = {&follower}}, {"backward", "kill", 2, 4, -1});
  EXPECT_EQ(testing::losses(follower).size(), 1u);
  testing::expect_same_history(one, killed);
  const testing::TemporaryFolder folder;
  options = sequence_options(2);
  options.checkpoints.frequency = 2;
  run(GetParam(), options, {.checkpoint_folder = folder.path, .stop_after = 5});
  const TrainingResult rest =
      run(GetParam(), options, {.checkpoint_folder = folder.path, .resume = true});
  EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain);
}

// The loss and its gradient by hand: the sum over all valid steps, divided by their number.
TEST(SequenceTraining, DividesByTheValidStepsOfTheMiniBatch) {
  Network network = network_of(Kind::regression), trained = network.clone();
  TrainingOptions options = sequence_options(1);
  options.solver.momentum = 0;
  options.mini_batch_size = kSequences;
  options.max_epochs = 1;
  TrainingProblem problem = problem_of(Kind::regression);
  problem.data.validation = nullptr;
  for (auto* of : {&network, &trained}) {
    for (size_t k = 0; k < of->parameters().size(); ++k) {
      of->parameters()[k].value.copy_from(network.parameters()[k].value);
    }
  }
  // Without dropout.
  const auto without = [](const Network& from) {
    Network made;
    for (const LayerNode& node : from.layers()) {
      if (node.layer->type() != "dropout") made.add(node.layer);
    }
    made.set_loss("mean_squared_error");
    made.initialize(3);
    return made;
  };
  Network plain = without(network), by_hand = without(network);
  const TrainingResult result = train(plain, problem.data, options);
  Tape tape;
  tape.watch(by_hand.parameter_values());
  std::vector<Tensor> losses;
  double steps = 0;
  const std::vector<Array> inputs = sequences();
  for (int64_t i = 0; i < kSequences; ++i) {
    const Array& one = inputs[static_cast<size_t>(i)];
    const int64_t own = one.shape[0];
    const Tensor x = Tensor::from(std::span<const float>(one.values), {1, own, kChannels});
    std::vector<float> wanted;
    for (int64_t t = 0; t < own; ++t) {
      wanted.push_back(one.values[static_cast<size_t>(t * kChannels)]);
      wanted.push_back(0.5f);
    }
    const Tensor target = Tensor::from(std::span<const float>(wanted), {own, 2});
    const Tensor y = by_hand.forward({x}, {.training = true}).reshaped({own, 2});
    losses.push_back(ops::sum(ops::mean_squared_error(y, target)));
    steps += static_cast<double>(own);
  }
  Tensor total = losses[0];
  for (size_t i = 1; i < losses.size(); ++i) total = total + losses[i];
  const Tensor loss = total / steps;
  EXPECT_NEAR(result.iterations[0].loss, static_cast<double>(loss.item()), 1e-5);
  SgdmState state;
  sgdm_update(by_hand, tape.gradient(loss, by_hand.parameter_values()), state,
              {.learning_rate = options.solver.initial_learning_rate, .momentum = 0});
  for (size_t p = 0; p < plain.parameters().size(); ++p) {
    const auto a = plain.parameters()[p].value.to_vector(),
               b = by_hand.parameters()[p].value.to_vector();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << p << " " << i;
  }
}

TEST(SequenceTraining, RefusesWhatDoesNotFit) {
  TrainingProblem tagger = problem_of(Kind::tagger), classifier = problem_of(Kind::classifier);
  testing::expect_says(message_of<InvalidArgument>(
                           [&] { train(tagger.network, classifier.data, sequence_options(1)); }),
                       "steps");
  testing::expect_says(message_of<InvalidArgument>(
                           [&] { train(classifier.network, tagger.data, sequence_options(1)); }),
                       "steps");
}

// Those whose longest sequences agree were combined all the same.
TEST(SequenceTraining, CombinedSequencesHaveEqualLengths) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kSequences; ++i) labels.push_back(i % 2);
  std::vector<Array> reversed = sequences();
  std::ranges::reverse(reversed);
  const DatastorePtr first = sequence_datastore(sequences(), {.labels = labels});
  const DatastorePtr data = combine({first, sequence_datastore(std::move(reversed))});
  for (const LayerPtr& layer : {addition(), concatenation()}) {
    Network network;
    network.add(sequence_input({.channels = kChannels, .normalization = "none"}), "p");
    network.add(sequence_input({.channels = kChannels, .normalization = "none"}), "q");
    network.add(layer, "both", {"p", "q"});
    network.add(last_step());
    network.add(fully_connected({.units = 2}));
    network.add(softmax());
    network.initialize(1);
    const auto says = [](const std::function<void()>& use) {
      const std::string message = message_of<InvalidArgument>(use);
      testing::expect_says(message, "[both] its inputs are sequences of different lengths: ");
      testing::expect_says(message, "in `p`, but ");
    };
    says([&] { train(network, {.training = data}, sequence_options(1)); });
    says([&] { evaluate(network, data, {.threads = 2}); });
  }
}

// The message was about shapes of arrays.
TEST(SequenceTraining, LabelsByStepAsTargetsOfTheirOwnAreRefused) {
  const DatastorePtr labels = step_labels(testing::signal_tags(kSequences));
  const auto expect_refused = [](const std::function<void()>& use) {
    const std::string message = message_of<InvalidArgument>(use);
    testing::expect_says(message, "labels by step (");
    testing::expect_says(message, "must be parts of the examples");
  };
  TrainingProblem tagger = problem_of(Kind::tagger);
  const DatastorePtr inputs = sequence_datastore(testing::signals(kSequences, kChannels));
  const TrainingData apart{.training = inputs, .training_targets = labels};
  expect_refused([&] { train(tagger.network, apart, sequence_options(1)); });
  TrainingData validated = tagger.data;
  validated.validation = inputs;
  validated.validation_targets = labels;
  expect_refused([&] { train(tagger.network, validated, sequence_options(1)); });
  tagger.network.initialize(1);
  expect_refused([&] { evaluate(tagger.network, inputs, {.targets = labels}); });
}

// Targets by step of other lengths were read outside their memory, or compared with zeros.
TEST(SequenceTraining, TargetsOfOtherLengthsAreRefusedInEvaluations) {
  for (const int64_t more : {-1, 1, 2, 40}) {
    std::vector<Array> targets;
    for (const Array& one : sequences()) {
      const int64_t steps = std::max<int64_t>(1, one.shape[0] + more);
      targets.push_back({{steps, 2}, std::vector<float>(static_cast<size_t>(2 * steps), 0.5f)});
    }
    const DatastorePtr others = sequence_datastore(std::move(targets));
    TrainingProblem problem = problem_of(Kind::regression);
    const auto says = [&](const auto& call) {
      const std::string message = message_of<InvalidArgument>(call);
      testing::expect_says(message, "[evaluate] observation ");
      testing::expect_says(message, "in its target");
    };
    const DatastorePtr inputs = sequence_datastore(sequences());
    says([&] { evaluate(problem.network, inputs, {.threads = 2, .targets = others}); });
    const DatastorePtr paired = with_targets(inputs, others, TargetLengths::any);
    says([&] { evaluate(problem.network, paired, {.threads = 2}); });
  }
}

}  // namespace
}  // namespace lockstep::sequence_training
