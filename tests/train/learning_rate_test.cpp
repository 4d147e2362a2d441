#include <gtest/gtest.h>

#include <cmath>
#include <limits>
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

// The rates of the iterations from the first on, compared with those of PyTorch 1.13.
void expect_rates(const TrainingOptions& options, const std::vector<double>& expected,
                  std::span<const ObjectiveValue> validations = {}, int64_t per_epoch = 1) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(learning_rate_of(options, static_cast<int64_t>(i) + 1, per_epoch, validations),
                expected[i], 1e-12)
        << i;
  }
}

TEST(LearningRate, OneCycleIsThatOfPyTorch) {
  TrainingOptions options = scheduled({"one-cycle"});
  options.max_epochs = 2;  // OneCycleLR(optimizer, 0.4, total_steps=20, cycle_momentum=False)
  expect_rates(options,
               {0.016,
                0.052668737080010131,
                0.1486687370800101,
                0.26733126291998988,
                0.36333126291998991,
                0.4,
                0.39498560249403497,
                0.38019385280538953,
                0.35636647102842001,
                0.32469826157990522,
                0.28677720071652035,
                0.24450480877451572,
                0.2000008,
                0.15549679122548429,
                0.11322439928347969,
                0.075303338420094804,
                0.043635128971580013,
                0.019807747194610516,
                0.005015997505965022,
                1.6e-06},
               {}, 10);
  options.max_epochs = 17;  // pct_start=0.45, div_factor=10, final_div_factor=100
  options.schedule.rise_share = 0.45;
  options.schedule.first_factor = 0.1;
  options.schedule.last_factor = 0.001;
  expect_rates(options, {0.04, 0.059715450855499952, 0.11454292561715951, 0.19247188668281573,
                         0.27643117180680055, 0.3480286125477271, 0.39158003307995848,
                         0.39862000494711636, 0.37979539677388569, 0.34088531620528378,
                         0.2862413633557962, 0.22197477284639811, 0.15527294954830867,
                         0.093595648302914197, 0.043840694744048031, 0.011572550791064349, 0.0004});
  for (const double rise : {0.0, 0.05, 0.99}) {
    for (const int64_t epochs : {1, 2, 20}) {
      options.schedule.rise_share = rise;
      options.max_epochs = epochs;
      EXPECT_TRUE(std::isfinite(learning_rate_of(options, 1, 1))) << rise << " " << epochs;
      EXPECT_NEAR(learning_rate_of(options, epochs, 1), epochs > 1 ? 0.0004 : 0.4, 0.4);
    }
  }
}

TEST(LearningRate, WarmRestartsAreThoseOfPyTorch) {
  TrainingOptions options = scheduled({"warm-restarts"});
  options.schedule.drop_period = 5;
  options.schedule.final_factor = 0.1;  // CosineAnnealingWarmRestarts(optimizer, 5, 1, 0.04)
  expect_rates(options, {0.4, 0.36562305898749053, 0.27562305898749057, 0.16437694101250949,
                         0.074376941012509482, 0.4, 0.36562305898749053, 0.27562305898749057,
                         0.16437694101250949, 0.074376941012509482, 0.4, 0.36562305898749053});
  options.schedule.drop_period = 3;  // T_0=3, T_mult=2
  options.schedule.period_factor = 2;
  options.schedule.final_factor = 0;
  expect_rates(options, {0.4,
                         0.3,
                         0.1,
                         0.4,
                         0.3732050807568878,
                         0.3,
                         0.2,
                         0.1,
                         0.02679491924311226,
                         0.4,
                         0.39318516525781366,
                         0.3732050807568878,
                         0.34142135623730951,
                         0.3,
                         0.25176380902050416,
                         0.2,
                         0.14823619097949589,
                         0.1,
                         0.058578643762690508,
                         0.02679491924311226,
                         0.0068148347421863598,
                         0.4,
                         0.39828897227476212});
  options.schedule.period_factor = 1e300;
  EXPECT_EQ(learning_rate_of(options, 4, 1), 0.4);
}

std::vector<ObjectiveValue> each_iteration(const std::vector<double>& values) {
  std::vector<ObjectiveValue> all;
  for (const double value : values) all.push_back({std::ssize(all) + 1, value});
  return all;
}

TEST(LearningRate, PlateauIsThatOfPyTorch) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto losses = each_iteration(
      {1, .9, .95, .9, .89999, .91, .8, .85, .9, .85, .86, .87, .79, .9, .9, .9, nan, .9, .9, .9});
  TrainingOptions options = scheduled({"plateau"});
  options.schedule.plateau_patience = 2;  // ReduceLROnPlateau(optimizer, patience=2)
  expect_rates(options, {0.4,   0.4,   0.4,   0.4,   0.4,   0.04,  0.04,   0.04,   0.04,   0.04,
                         0.004, 0.004, 0.004, 0.004, 0.004, 0.004, 0.0004, 0.0004, 0.0004, 0.00004},
               losses);
  options.schedule.plateau_patience = 1;  // factor=0.5, cooldown=3, threshold=0.05, min_lr=0.06
  options.schedule.drop_factor = 0.5;
  options.schedule.plateau_cooldown = 3;
  options.schedule.plateau_threshold = 0.05;
  options.schedule.final_factor = 0.15;
  expect_rates(options, {0.4, 0.4, 0.4, 0.4, 0.2,  0.2,  0.2,  0.2,  0.2,  0.1,
                         0.1, 0.1, 0.1, 0.1, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06},
               losses);
  options.schedule.plateau_cooldown = 0;  // mode="max", without cooldown and min_lr
  options.schedule.final_factor = 0;
  options.validation.objective = "accuracy";
  expect_rates(
      options,
      {0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025},
      each_iteration(
          {.1, .2, .2, .2, .20001, .3, .3, .31, .31, .31, .31, .33, .33, .33, .32, .33}));
}

TEST(LearningRate, APlateauCountsTheValidationsOfItsPart) {
  TrainingOptions options = scheduled({"warmup", "plateau", "none"}, {3, 4});
  options.schedule.plateau_patience = 0;
  options.schedule.drop_factor = 0.5;
  const auto losses = each_iteration({1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  // The first validation of the part is that after iteration 4.
  const std::vector<double> expected{0.4, 0.4, 0.2, 0.1, 0.05, 0.05};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(learning_rate_of(options, static_cast<int64_t>(i) + 4, 1, losses), expected[i],
                1e-15)
        << i;
  }
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
