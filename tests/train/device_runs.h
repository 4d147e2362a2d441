// Trainings on a device, which tests compare with those on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep::testing {

inline TrainingData digits() {
  TrainingData data{.training = some_digits(70), .validation = some_digits(23, 100)};
  data.augmentation.reflect_x = true;
  data.augmentation.translate_x = {-2, 2};
  data.noise.salt_and_pepper = 0.05;
  return data;
}

inline TrainingOptions options_for(const std::string& device, int64_t streams = 2) {
  TrainingOptions options = small_options();
  options.data.last_mini_batch = LastMiniBatch::keep;  // 10 of 70: shards of 5
  options.device = device;
  options.streams = streams;
  return options;
}

struct Outcome {
  TrainingResult result;
  std::vector<std::vector<float>> values;
};

inline Outcome run(const TrainingOptions& options, const TrainingControl& control = {}) {
  Network network = small_classifier();
  Outcome outcome{train(network, digits(), options, control), {}};
  EXPECT_EQ(network.device(), Device{}) << "the network did not come back";
  for (const auto& l : network.parameters()) outcome.values.push_back(l.value.to_vector());
  for (const auto& s : network.state()) outcome.values.push_back(s.value.to_vector());
  return outcome;
}

// Both may be NaN.
inline void expect_same(double a, double b) {
  EXPECT_TRUE(a == b || (a != a && b != b)) << a << ", " << b;
}

inline void expect_same_training(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.result.digest, b.result.digest);
  ASSERT_EQ(a.result.iterations.size(), b.result.iterations.size());
  for (size_t i = 0; i < a.result.iterations.size(); ++i) {
    EXPECT_EQ(a.result.iterations[i].digest, b.result.iterations[i].digest) << "iteration " << i;
    EXPECT_EQ(a.result.iterations[i].loss, b.result.iterations[i].loss);
    expect_same(a.result.iterations[i].accuracy, b.result.iterations[i].accuracy);
  }
}

inline void expect_same(const Outcome& a, const Outcome& b) {
  expect_same_training(a, b);
  ASSERT_EQ(a.result.validations.size(), b.result.validations.size());
  for (size_t i = 0; i < a.result.validations.size(); ++i) {
    EXPECT_EQ(a.result.validations[i].loss, b.result.validations[i].loss);
    expect_same(a.result.validations[i].accuracy, b.result.validations[i].accuracy);
  }
}

}  // namespace lockstep::testing
