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
  return ops::multiplication({loss, Tensor::full(loss.shape(), 0.5f, loss.device())});
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
    options.workers = workers;
    options.check_frequency = 4;
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
                   return ops::addition({ops::softmax_cross_entropy(heads[0], shard[1]),
                                         ops::softmax_cross_entropy(heads[1], shard[1])});
                 },
                 "two heads"};
    TrainingOptions options = testing::law_options(threads);
    options.initial_learning_rate = 0.001;
    options.device = device;
    return train(network, data, options);
  };
  const TrainingResult one = trained(1, "cpu");
  EXPECT_LT(one.validations.back().loss, one.validations.front().loss);
  EXPECT_EQ(trained(3, "cpu").digest, one.digest);
  EXPECT_EQ(trained(1, "cuda:0").digest, one.digest);
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
  options.initial_learning_rate = 1e18;
  EXPECT_THROW(train(problem.network, problem.data, options), Error);
}

}  // namespace
}  // namespace lockstep
