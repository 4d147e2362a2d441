// Smoothed labels, compared with constants of PyTorch's CrossEntropyLoss (1.13, fp64).
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

// Logits of four observations, and the network that gives them: w = 1, b = 0.
const std::vector<float> kLogits{1, 2, -1, 0.5, 0, 3, -2, 0.25, 1, 4, 4, -4};

Network identity_network() {
  Network network{feature_input({.features = 3, .normalization = "none"}),
                  fully_connected({.units = 3}), softmax()};
  network.initialize(1);
  network.parameter("fully_connected_1.weights")
      .copy_from(Tensor::from(std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}, Shape{3, 3}));
  return network;
}

TrainingData logits_data() {
  return {.training = array_datastore({4, {3}, kLogits},
                                      {.labels = {1, 0, 2, 1}, .classes = {"a", "b", "c"}})};
}

// One iteration with the rate 1: the loss, and the mean gradient with respect to the logits.
struct Step {
  double loss = 0;
  std::vector<float> gradient;
};

Step step_of(const TrainingOptions& given) {
  TrainingOptions options = given;
  options.solver.initial_learning_rate = 1;
  options.solver.l2 = 0;
  options.mini_batch_size = 4;
  options.shards.size = 3;
  options.max_iterations = 1;
  Network network = identity_network();
  Step step{train(network, logits_data(), options).iterations.at(0).loss, {}};
  for (const float b : network.parameter("fully_connected_1.bias").to_vector()) {
    step.gradient.push_back(-b);
  }
  return step;
}

void expect_near(const Step& step, const std::vector<double>& losses,
                 const std::vector<double>& gradients) {
  double loss = 0;
  for (const double of_one : losses) loss += of_one / 4;
  EXPECT_NEAR(step.loss, loss, 1e-6);
  for (size_t c = 0; c < 3; ++c) {
    double expected = 0;
    for (size_t i = c; i < gradients.size(); i += 3) expected += gradients[i] / 4;
    EXPECT_NEAR(static_cast<double>(step.gradient[c]), expected, 1e-6) << c;
  }
}

TEST(LabelSmoothing, IsThatOfPyTorch) {
  TrainingOptions options;
  options.label_smoothing = 0.2;
  // CrossEntropyLoss(label_smoothing=0.2, reduction="none"), its sum differentiated.
  expect_near(
      step_of(options),
      {0.615678883434853, 2.4905396250360341, 0.67012618805751378, 1.226648231141906},
      {0.19282979367575248, -0.16128215396842549, -0.031547639707326935, -0.794145220985919,
       -0.022680186374608821, 0.81682540736052767, -0.03395835938583229, 0.24366111246833211,
       -0.20970275308249986, 0.4332494817408955, -0.36675051825910454, -0.066498963481790963});
}

TEST(LabelSmoothing, HasTheWeightsOfAllClasses) {
  TrainingOptions options;
  options.label_smoothing = 0.2;
  options.class_weights = {0.5, 2, 1};
  // The same with weight=[0.5, 2, 1]; divided by the number of observations.
  expect_near(
      step_of(options),
      {0.87318906407500818, 1.5617862069672661, 0.63413039432609764, 1.804410645982383},
      {0.4424101772944351, -0.44012839338655774, -0.0022817839078771549, -0.38740308440219312,
       -0.10547522914836337, 0.49287831355055639, 0.00046525085686219194, 0.18733870510616543,
       -0.18780395596302757, 0.88317960541386398, -0.81682039458613609, -0.066359210827727874});
}

TEST(LabelSmoothing, DoesNotChangeValidations) {
  TrainingData data = logits_data();
  data.validation = data.training;
  TrainingOptions options;
  options.solver.initial_learning_rate = 1e-30;
  options.mini_batch_size = 4;
  options.max_epochs = 1;
  options.label_smoothing = 0.5;
  Network network = identity_network();
  const TrainingResult result = train(network, data, options);
  Network same = identity_network();
  EXPECT_NEAR(result.validations.back().loss, evaluate(same, data.training).loss, 1e-6);
  EXPECT_GT(result.iterations.back().loss, result.validations.back().loss + 0.1);
}

TEST(LabelSmoothing, IsRefusedWhereLabelsAreNotThoseOfCrossEntropy) {
  TrainingOptions options;
  options.label_smoothing = 0.1;
  options.mini_batch_size = 4;
  Network network = identity_network();
  network.set_loss("cross_entropy(output, target)");
  expect_says(testing::message_of<InvalidArgument>([&] { train(network, logits_data(), options); }),
              "label_smoothing is for the loss cross_entropy");
}

TEST(ClassWeights, BalancedAreThoseOfScikitLearn) {
  const auto of = [](std::vector<int64_t> labels) {
    const ArrayBlock block{std::ssize(labels), {1}, std::vector<float>(labels.size())};
    return balanced_class_weights(
        *array_datastore(block, {.labels = std::move(labels), .classes = {"a", "b", "c"}}));
  };
  // compute_class_weight("balanced", classes=[0, 1, 2], y=...)
  EXPECT_EQ(of({0, 0, 0, 1, 2, 2}), (std::vector<double>{6.0 / 9, 2, 1}));
  EXPECT_EQ(of({0, 0, 0, 2}), (std::vector<double>{4.0 / 6, 1, 2}));
  EXPECT_THROW(balanced_class_weights(*array_datastore({2, {1}, {1, 2}}, {})), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
