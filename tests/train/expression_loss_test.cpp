// Trainings whose loss is an expression, compared with the same loss as a function of ops.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/trainer.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

constexpr const char* kMixed = "cross_entropy(output, target) + 0.5 * sum(square(output))";

Tensor mixed_loss(Shard& shard) {
  const Tensor logits = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  return ops::softmax_cross_entropy(logits, shard[1]) +
         ops::sum(ops::square(ops::softmax(logits)), {1}) * 0.5;
}

TrainingResult trained_with(const std::string& expression, const TrainingLoss& loss,
                            const TrainingOptions& options) {
  TrainingProblem problem = testing::law_problem();
  if (!expression.empty()) problem.network.set_loss(expression);
  problem.data.loss = loss;
  return train(problem.network, problem.data, options);
}

// The gradient flows through both readers of the softmax.
TEST(ExpressionLoss, IsTheLossOfAFunctionOfOps) {
  const TrainingResult own = trained_with("", {mixed_loss, "mixed"}, testing::law_options(2));
  const TrainingResult expression = trained_with(kMixed, {}, testing::law_options(2));
  const TrainingResult plain = trained_with("", {}, testing::law_options(2));
  ASSERT_EQ(expression.iterations.size(), own.iterations.size());
  for (size_t i = 0; i < own.iterations.size(); ++i) {
    EXPECT_NEAR(expression.iterations[i].loss, own.iterations[i].loss,
                1e-5 * own.iterations[i].loss);
  }
  EXPECT_GT(std::abs(expression.iterations.back().loss - plain.iterations.back().loss), 1e-3);
  ASSERT_FALSE(own.validations.empty());
  EXPECT_NEAR(expression.validations.back().loss, own.validations.back().loss,
              1e-4 * own.validations.back().loss);
  EXPECT_NEAR(expression.validations.back().accuracy, own.validations.back().accuracy, 0.011);
}

TEST(ExpressionLoss, HasOneDigestForThreadsAndDevices) {
  const TrainingResult one = trained_with(kMixed, {}, testing::law_options(1));
  EXPECT_EQ(trained_with(kMixed, {}, testing::law_options(3)).digest, one.digest);
  const devicetest::FakeDevice fake;
  TrainingOptions options = testing::law_options(1);
  options.device = "cuda:0";
  EXPECT_EQ(trained_with(kMixed, {}, options).digest, one.digest);
}

// Pixels up to 255 without a change of scale: probabilities become 0 in fp32, whose logarithm is
// infinite. The cross-entropy is that of the logits.
TEST(ExpressionLoss, StaysFiniteForProbabilitiesOfZero) {
  for (const char* loss : {"cross_entropy(output, target)", kMixed,
                           "cross_entropy(labels=target, probabilities=output) + mean(output)"}) {
    Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                    fully_connected({.units = 10}), softmax()};
    network.set_loss(loss);
    network.initialize(1);
    TrainingOptions options = testing::law_options(2);
    options.max_epochs = 1;
    options.solver.initial_learning_rate = 1e-4;
    const TrainingResult result = train(network, testing::law_data(), options);
    EXPECT_GT(result.iterations.front().loss, 20) << loss;  // no probability is so small
    EXPECT_TRUE(std::isfinite(result.validations.back().loss)) << loss;
  }
}

// A label that a one_hot() has no class for gives NaN, and the error names where it is.
TEST(ExpressionLoss, ThatIsNotFiniteNamesTheObservations) {
  const char* const loss = "cross_entropy(output, target) + mean(one_hot(target, 9))";
  const auto message = [&](const TrainingOptions& options) -> std::string {
    try {
      trained_with(loss, {}, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string one = message(testing::law_options(1));
  const std::string text =
      "the loss of iteration 1 (epoch 1) is not a finite number, in observation";
  EXPECT_NE(one.find(text), std::string::npos) << one;
  EXPECT_NE(one.find(" of its mini-batch"), std::string::npos) << one;
  EXPECT_EQ(one.find("observations 0 to"), std::string::npos) << one;  // others have a class
  EXPECT_EQ(message(testing::law_options(3)), one);
  const devicetest::FakeDevice fake;
  TrainingOptions options = testing::law_options(1);
  options.device = "cuda:0";
  EXPECT_EQ(message(options), one);
}

}  // namespace
}  // namespace lockstep
