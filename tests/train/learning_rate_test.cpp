#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

constexpr int64_t kPerEpoch = 10;

TrainingOptions scheduled(std::vector<std::string> names, std::vector<double> epochs = {}) {
  TrainingOptions options;
  options.solver.initial_learning_rate = 0.4;
  options.max_epochs = 10;
  options.schedule.types = std::move(names);
  options.schedule.epochs = std::move(epochs);
  return options;
}

// The learning rate of the iteration after `iterations` iterations.
double after(const TrainingOptions& options, int64_t iterations) {
  return learning_rate_of(options, iterations + 1, kPerEpoch);
}

TEST(LearningRate, NoneKeepsTheRate) {
  for (int64_t done : {0, 1, 1000}) EXPECT_EQ(after(scheduled({"none"}), done), 0.4);
}

TEST(LearningRate, PiecewiseDropsAfterEveryPeriod) {
  TrainingOptions options = scheduled({"piecewise"});
  options.schedule.drop_factor = 0.5;
  options.schedule.drop_period = 3;
  const std::vector<double> expected{0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05};
  for (size_t epoch = 0; epoch < expected.size(); ++epoch) {
    const auto first = static_cast<int64_t>(epoch) * kPerEpoch;
    EXPECT_EQ(after(options, first), expected[epoch]);
    EXPECT_EQ(after(options, first + kPerEpoch - 1), expected[epoch]);
  }
}

TEST(LearningRate, ExponentialIsPiecewiseAtItsEnds) {
  TrainingOptions options = scheduled({"exponential"});
  options.schedule.drop_factor = 0.25;
  options.schedule.drop_period = 2;
  EXPECT_DOUBLE_EQ(after(options, 0), 0.4);
  EXPECT_DOUBLE_EQ(after(options, kPerEpoch), 0.2);
  EXPECT_DOUBLE_EQ(after(options, 2 * kPerEpoch), 0.1);
  EXPECT_DOUBLE_EQ(after(options, 4 * kPerEpoch), 0.025);
}

TEST(LearningRate, PolynomialAndCosineEndAtTheirShare) {
  TrainingOptions options = scheduled({"polynomial"});
  options.schedule.final_factor = 0.1;
  options.schedule.power = 2;
  EXPECT_DOUBLE_EQ(after(options, 0), 0.4);
  EXPECT_DOUBLE_EQ(after(options, 50), 0.4 * (0.1 + 0.9 * 0.25));
  EXPECT_DOUBLE_EQ(after(options, 100), 0.04);
  options.schedule.types = {"cosine"};
  EXPECT_DOUBLE_EQ(after(options, 0), 0.4);
  EXPECT_DOUBLE_EQ(after(options, 50), 0.4 * 0.55);
  EXPECT_NEAR(after(options, 25), 0.4 * (0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2), 1e-12);
  EXPECT_NEAR(after(options, 100), 0.04, 1e-15);
}

TEST(LearningRate, CyclicalGoesDownAndUp) {
  TrainingOptions options = scheduled({"cyclical"});
  options.schedule.final_factor = 0.5;
  options.schedule.drop_period = 2;
  for (int64_t cycle = 0; cycle < 3; ++cycle) {
    const int64_t begin = cycle * 2 * kPerEpoch;
    EXPECT_DOUBLE_EQ(after(options, begin), 0.4);
    EXPECT_DOUBLE_EQ(after(options, begin + kPerEpoch / 2), 0.3);
    EXPECT_DOUBLE_EQ(after(options, begin + kPerEpoch), 0.2);
    EXPECT_DOUBLE_EQ(after(options, begin + 3 * kPerEpoch / 2), 0.3);
  }
}

TEST(LearningRate, SchedulesFollowEachOther) {
  // Half an epoch up, then down to a tenth in four epochs, then constant.
  TrainingOptions options = scheduled({"warmup", "polynomial", "none"}, {0.5, 4});
  options.schedule.final_factor = 0.1;
  options.schedule.warmup_factor = 0.5;
  EXPECT_DOUBLE_EQ(after(options, 0), 0.4 * (0.5 + 0.5 / 5));
  EXPECT_DOUBLE_EQ(after(options, 4), 0.4);
  EXPECT_DOUBLE_EQ(after(options, 5), 0.4);
  EXPECT_DOUBLE_EQ(after(options, 25), 0.4 * 0.55);
  EXPECT_DOUBLE_EQ(after(options, 45), 0.04);
  EXPECT_DOUBLE_EQ(after(options, 99), 0.04);
  // Ten epochs at one rate end without the drop of an eleventh epoch.
  options = scheduled({"piecewise", "none"}, {4});
  options.schedule.drop_factor = 0.5;
  options.schedule.drop_period = 2;
  EXPECT_DOUBLE_EQ(after(options, 39), 0.2);
  EXPECT_DOUBLE_EQ(after(options, 40), 0.2);
  // After its end, a last schedule stays at its final value.
  options = scheduled({"polynomial"}, {2});
  options.schedule.final_factor = 0.5;
  EXPECT_DOUBLE_EQ(after(options, 20), 0.2);
  EXPECT_DOUBLE_EQ(after(options, 90), 0.2);
}

TEST(LearningRate, AFunctionDecidesInstead) {
  TrainingOptions options = scheduled({"cosine"});
  options.schedule.function = [](const ScheduleStep& s) {
    return s.initial_learning_rate / static_cast<double>(s.iteration + s.epoch);
  };
  EXPECT_EQ(after(options, 0), 0.2);
  EXPECT_EQ(after(options, kPerEpoch), 0.4 / 13);
  options.schedule.function = [](const ScheduleStep&) { return -1.0; };
  EXPECT_THROW(after(options, 0), InvalidArgument);
  options.schedule.function = [](const ScheduleStep&) { return std::nan(""); };
  EXPECT_THROW(after(options, 0), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
