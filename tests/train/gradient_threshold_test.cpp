#include "lockstep/train/optimizer/gradient_threshold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::small_classifier;
using testing::small_options;
using testing::some_digits;

TEST(GradientThreshold, BlocksHold1024Elements) {
  const std::vector<float> g(2500, 2.0f);
  std::vector<double> sums(kernels::norm_blocks(g.size()));
  kernels::table_for({}).block_squares(g.data(), g.size(), sums.data(), nullptr);
  EXPECT_EQ(sums, (std::vector<double>{4096, 4096, 1808}));
  EXPECT_EQ(kernels::norm_blocks(0), 0u);
}

TEST(GradientThreshold, EachNormOrAllTogetherIsCut) {
  // Sums over 10 observations: norms 0.3, 0.4 and 0; together 0.5.
  const std::vector<std::vector<double>> squares{{4, 5}, {16}, {}};
  const auto divisors = [&](GradientThresholdMethod method, double threshold) {
    return GradientThreshold{threshold, method}.divisors(squares, 10);
  };
  EXPECT_EQ(divisors(GradientThresholdMethod::l2norm, 0.35),
            (std::vector<double>{10, 10 / (0.35 / 0.4), 10}));
  EXPECT_EQ(divisors(GradientThresholdMethod::global_l2norm, 0.35),
            std::vector<double>(3, 10 / 0.7));
  EXPECT_EQ(divisors(GradientThresholdMethod::global_l2norm, 0.5), std::vector<double>(3, 10));
}

TEST(GradientThreshold, ElementsAreLimitedAndNotANumberStays) {
  const float infinite = std::numeric_limits<float>::infinity();
  std::vector<float> g{-31, -30, 0, 29.5f, 30, 1e30f, -infinite, std::nanf("")};
  const float most = GradientThreshold{3, GradientThresholdMethod::absolute_value}.most(10);
  kernels::table_for({}).limit(g.data(), g.size(), most, nullptr);
  EXPECT_TRUE(std::isnan(g.back()));
  g.pop_back();
  EXPECT_EQ(g, (std::vector<float>{-30, -30, 0, 29.5f, 30, 30, -30}));
}

// One plain iteration of sgdm without momentum or L2. The norm of the step is the learning rate
// times the norm of the gradient.
TEST(GradientThreshold, BoundsTheStepOfATraining) {
  for (const GradientThresholdMethod method :
       {GradientThresholdMethod::l2norm, GradientThresholdMethod::global_l2norm,
        GradientThresholdMethod::absolute_value}) {
    Network network = small_classifier();
    std::vector<Tensor> before;
    for (const auto& l : network.parameters()) before.push_back(l.value.clone());
    TrainingOptions options = small_options();
    options.solver.momentum = 0;
    options.solver.l2 = 0;
    options.solver.initial_learning_rate = 1;
    options.solver.gradient_threshold = 0.01;
    options.solver.gradient_threshold_method = method;
    TrainingControl control;
    control.stop_after = 1;
    train(network, {some_digits(60)}, options, control);
    double all = 0, largest_norm = 0, largest = 0;
    for (size_t p = 0; p < before.size(); ++p) {
      const auto a = before[p].to_vector(), b = network.parameters()[p].value.to_vector();
      double squares = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        const double step = static_cast<double>(b[i]) - static_cast<double>(a[i]);
        squares += step * step;
        largest = std::max(largest, std::abs(step));
      }
      largest_norm = std::max(largest_norm, std::sqrt(squares));
      all += squares;
    }
    const double cut = method == GradientThresholdMethod::l2norm          ? largest_norm
                       : method == GradientThresholdMethod::global_l2norm ? std::sqrt(all)
                                                                          : largest;
    EXPECT_NEAR(cut, 0.01, 1e-6) << static_cast<int>(method);
  }
}

TEST(ClassWeights, WeighLossAndGradientOfTheirClass) {
  const auto trained = [](std::vector<double> weights) {
    Network network = small_classifier();
    TrainingOptions options = small_options();
    options.class_weights = std::move(weights);
    TrainingControl control;
    control.stop_after = 1;
    const auto result = train(network, {some_digits(60)}, options, control);
    return std::pair(result.iterations[0].loss, network.parameters()[0].value.to_vector());
  };
  const auto plain = trained({}), doubled = trained(std::vector<double>(10, 2));
  EXPECT_DOUBLE_EQ(doubled.first, 2 * plain.first);
  EXPECT_NE(doubled.second, plain.second);
  // One class after the other: each loss is that class's share of the unweighted loss, in any row
  // order.
  double sum = 0;
  for (size_t c = 0; c < 10; ++c) {
    std::vector<double> only(10, 0);
    only[c] = 1;
    const double share = trained(only).first;
    EXPECT_GT(share, 0) << "class " << c;
    sum += share;
  }
  EXPECT_NEAR(sum, plain.first, 1e-12);
  std::vector<double> mixed(10, 0);
  mixed[3] = 1;
  mixed[7] = 2;
  std::vector<double> third(10, 0), seventh(10, 0);
  third[3] = seventh[7] = 1;
  EXPECT_NEAR(trained(mixed).first, trained(third).first + 2 * trained(seventh).first, 1e-12);
  // If all class weights are 0, only L2 changes parameters.
  EXPECT_EQ(trained(std::vector<double>(10, 0)).first, 0);
  Network network = small_classifier();
  TrainingOptions options = small_options();
  options.class_weights = {1, 2};
  EXPECT_THROW(train(network, {some_digits(60)}, options), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
