// Trainings with a user-defined loss function.
#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/state/receipt.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::Recorder;
using testing::TemporaryFolder;

Tensor trainers_loss(Shard& shard) {
  const Tensor logits = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  return ops::softmax_cross_entropy(logits, shard[1]);
}

// Half the loss, so that trainings differ from those with the network's loss.
Tensor halved_loss(Shard& shard) {
  const Tensor loss = trainers_loss(shard);
  return ops::multiply({loss, Tensor::full(loss.shape(), 0.5f, loss.device())});
}

TrainingProblem halved_problem() {
  TrainingProblem problem = testing::law_problem();
  problem.data.loss = {halved_loss, "halved"};
  return problem;
}

TrainingResult run(const TrainingOptions& options, const TrainingLoss& loss,
                   const TrainingControl& control = {}) {
  TrainingProblem problem = testing::law_problem();
  problem.data.loss = loss;
  return train(problem.network, problem.data, options, control);
}

std::vector<double> losses_of(const TrainingResult& result) {
  std::vector<double> losses;
  for (const auto& r : result.iterations) losses.push_back(r.loss);
  return losses;
}

TEST(CustomLoss, HasTheBitsOfTheNetworksLossWhereBothAreTheSame) {
  const TrainingResult own = run(testing::law_options(2), {trainers_loss, "as the network's"});
  const TrainingResult network = run(testing::law_options(2), {});
  EXPECT_EQ(own.digest, network.digest);
  EXPECT_EQ(losses_of(own), losses_of(network));
  ASSERT_EQ(own.validations.size(), network.validations.size());
  ASSERT_FALSE(own.validations.empty());
  for (size_t i = 0; i < own.validations.size(); ++i) {
    EXPECT_NEAR(own.validations[i].loss, network.validations[i].loss,
                1e-6 * network.validations[i].loss);
    EXPECT_EQ(own.validations[i].accuracy, network.validations[i].accuracy);
  }
}

TEST(CustomLoss, OneDigestForThreadsWorkersAndDevices) {
  const TrainingLoss halved{halved_loss, "halved"};
  const TrainingResult one = run(testing::law_options(1), halved);
  EXPECT_NE(one.digest, run(testing::law_options(1), {}).digest);
  EXPECT_EQ(one.digest, run(testing::law_options(3), halved).digest);
  for (const int64_t workers : {2, 3}) {
    TrainingOptions options = testing::law_options(1);
    options.workers.count = workers;
    options.shards.check_frequency = 4;
    const auto call = make_call<&halved_problem>();
    TrainingProblem problem = call();
    const TrainingResult many = train(call, problem.network, problem.data, options);
    EXPECT_EQ(many.digest, one.digest);
    EXPECT_EQ(losses_of(many), losses_of(one));
    for (const auto& w : many.workers) EXPECT_GT(w.shards, 0) << "worker " << w.worker;
    ASSERT_EQ(many.validations.size(), one.validations.size());
    for (size_t i = 0; i < one.validations.size(); ++i) {
      EXPECT_EQ(many.validations[i].loss, one.validations[i].loss);
    }
  }
  const devicetest::FakeDevice fake;
  TrainingOptions options = testing::law_options(1);
  options.device = "cuda:0";
  const TrainingResult there = run(options, halved);
  EXPECT_EQ(there.digest, one.digest);
  EXPECT_EQ(losses_of(there), losses_of(one));
}

TEST(CustomLoss, StopsAndResumesWithTheLossOfItsName) {
  const TemporaryFolder folder;
  const TrainingLoss halved{halved_loss, "halved"};
  const TrainingResult whole = run(testing::law_options(2), halved);
  TrainingControl control;
  control.checkpoint_folder = folder.path + "/checkpoints";
  control.stop_after = 5;
  EXPECT_TRUE(run(testing::law_options(2), halved, control).stopped);
  control.stop_after = 0;
  control.resume = true;
  EXPECT_THROW(run(testing::law_options(2), {halved_loss, "another"}, control), InvalidArgument);
  EXPECT_THROW(run(testing::law_options(2), {}, control), InvalidArgument);
  EXPECT_EQ(run(testing::law_options(3), halved, control).digest, whole.digest);
}

// Two heads, of which the network's own loss could take neither.
TEST(CustomLoss, NetworksOfSeveralOutputsAreTrained) {
  const devicetest::FakeDevice fake;
  const auto trained = [](int64_t threads, const std::string& device) {
    Network network;
    network.add(image_input({.height = 28, .width = 28, .channels = 1}), "in");
    network.add(fully_connected({.units = 10}), "a", {"in"});
    network.add(fully_connected({.units = 10}), "b", {"in"});
    network.initialize(3);
    TrainingData data = testing::law_data();
    data.loss = {[](Shard& shard) {
                   const auto heads = shard.forward_all({shard[0]});
                   return ops::add({ops::softmax_cross_entropy(heads[0], shard[1]),
                                    ops::softmax_cross_entropy(heads[1], shard[1])});
                 },
                 "two heads"};
    TrainingOptions options = testing::law_options(threads);
    options.solver.initial_learning_rate = 0.001;
    options.device = device;
    return train(network, data, options);
  };
  const TrainingResult one = trained(1, "cpu");
  EXPECT_LT(one.validations.back().loss, one.validations.front().loss);
  EXPECT_EQ(trained(3, "cpu").digest, one.digest);
  EXPECT_EQ(trained(1, "cuda:0").digest, one.digest);
}

// Without moving statistics, which a loss may read.
Network without_statistics() {
  Network network({image_input({.height = 28, .width = 28, .channels = 1}),
                   convolution2d({.filters = 6, .kernel = {5, 5}, .stride = {2, 2}}), relu(),
                   dropout({.probability = 0.3}), fully_connected({.units = 10}), softmax()});
  network.initialize(3);
  return network;
}

// What a training that was ended by its loss leaves.
struct EndedLoss {
  std::string message;
  std::vector<std::vector<float>> values;
  std::vector<Digest> digests;  // of the iterations that were reported

  friend bool operator==(const EndedLoss&, const EndedLoss&) = default;
};

EndedLoss ended(const std::string& device, const TrainingLoss& loss, double rate) {
  Network network = without_statistics();
  TrainingData data = testing::law_data();
  data.loss = loss;
  TrainingOptions options = testing::law_options(2);
  options.device = device;
  options.solver.initial_learning_rate = rate;
  Recorder recorder;
  TrainingControl control;
  control.observers = {&recorder};
  EndedLoss outcome;
  try {
    train(network, data, options, control);
    ADD_FAILURE() << "nothing ended the training";
  } catch (const Error& e) {
    outcome.message = e.what();
  }
  for (const auto& p : network.parameters()) outcome.values.push_back(p.value.to_vector());
  for (const auto& r : recorder.iterations) outcome.digests.push_back(r.digest);
  return outcome;
}

TEST(CustomLoss, IterationsRunAheadOnADevice) {
  const devicetest::FakeDevice fake;
  const auto trained = [](const std::string& device, int64_t streams, int64_t check_frequency) {
    Network network = without_statistics();
    TrainingData data = testing::law_data();
    data.loss = {halved_loss, "halved"};
    TrainingOptions options = testing::law_options(2);
    options.device = device;
    options.streams = streams;
    options.shards.check_frequency = check_frequency;
    options.max_epochs = 1;
    return train(network, data, options);
  };
  const TrainingResult here = trained("cpu", 2, 0);
  for (const int64_t streams : {1, 3}) {
    SCOPED_TRACE(streams);
    const int marks = fake.marks();
    const TrainingResult there = trained("cuda:0", streams, 0);
    EXPECT_EQ(there.digest, here.digest);
    EXPECT_EQ(losses_of(there), losses_of(here));
    EXPECT_EQ(fake.marks() - marks, 4) << "iterations that ran ahead";
    ASSERT_EQ(there.shards_by_thread.size(), static_cast<size_t>(streams));
    for (const int64_t shards : there.shards_by_thread) EXPECT_GT(shards, 0);
  }
  // An iteration with a check is finished before the next one begins.
  const int marks = fake.marks();
  EXPECT_EQ(trained("cuda:0", 2, 4).digest, here.digest);
  EXPECT_EQ(fake.marks() - marks, 3);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(CustomLoss, ALossThatEndsATrainingLeavesTheLastFinishedIteration) {
  const devicetest::FakeDevice fake;
  for (const uint64_t at : {1, 2, 6}) {
    SCOPED_TRACE(at);
    const TrainingLoss failing{[at](Shard& shard) {
                                 if (shard.step().iteration == at && shard.first() > 50) {
                                   throw DataError("[test] enough");
                                 }
                                 return halved_loss(shard);
                               },
                               "failing"};
    const EndedLoss here = ended("cpu", failing, 0.01);
    EXPECT_EQ(here.message, "[test] enough");
    EXPECT_EQ(here.digests.size(), at - 1);
    EXPECT_EQ(ended("cuda:0", failing, 0.01), here);
  }
  const TrainingLoss halved{halved_loss, "halved"};
  const EndedLoss here = ended("cpu", halved, 1e15);
  EXPECT_NE(here.message.find("is not a finite number"), std::string::npos) << here.message;
  EXPECT_EQ(ended("cuda:0", halved, 1e15), here);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(CustomLoss, NamesWhatIsWrong) {
  TrainingOptions options = testing::law_options(1);
  EXPECT_THROW(run(options, {halved_loss, ""}), InvalidArgument) << "a loss without a name";
  EXPECT_THROW(run(options, {[](Shard& shard) { return ops::mean(halved_loss(shard)); }, "mean"}),
               InvalidArgument)
      << "one value for a shard";
  EXPECT_THROW(run(options, {[](Shard& shard) { return Tensor::zeros({shard.size()}); }, "zero"}),
               InvalidArgument)
      << "a loss that does not depend on the network";
  options.class_weights.assign(10, 1);
  EXPECT_THROW(run(options, {halved_loss, "halved"}), InvalidArgument);
}

TEST(CustomLoss, ALossThatIsNotFiniteKeepsTheLastValues) {
  TrainingProblem problem = testing::law_problem();
  problem.data.loss = {halved_loss, "halved"};
  TrainingOptions options = testing::law_options(2);
  options.solver.initial_learning_rate = 1e18;
  EXPECT_THROW(train(problem.network, problem.data, options), Error);
}

}  // namespace
}  // namespace lockstep
