// Compares two trainings bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/train/trainer.h"

namespace lockstep::testing {

// Whether two numbers are equal, or both NaN: accuracies without labels.
inline bool same_number(double a, double b) { return a == b || (a != a && b != b); }

// All but the receipts, which also name the device.
inline void expect_same_results(const TrainingResult& a, const TrainingResult& b) {
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.network_digest, b.network_digest);
  ASSERT_EQ(a.iterations.size(), b.iterations.size());
  for (size_t i = 0; i < a.iterations.size(); ++i) {
    EXPECT_EQ(a.iterations[i].digest, b.iterations[i].digest) << "iteration " << i + 1;
    EXPECT_EQ(a.iterations[i].loss, b.iterations[i].loss) << "iteration " << i + 1;
    EXPECT_PRED2(same_number, a.iterations[i].accuracy, b.iterations[i].accuracy)
        << "iteration " << i + 1;
  }
  ASSERT_EQ(a.validations.size(), b.validations.size());
  for (size_t i = 0; i < a.validations.size(); ++i) {
    EXPECT_EQ(a.validations[i].loss, b.validations[i].loss);
    EXPECT_PRED2(same_number, a.validations[i].accuracy, b.validations[i].accuracy);
    ASSERT_EQ(a.validations[i].metrics.size(), b.validations[i].metrics.size());
    for (size_t k = 0; k < a.validations[i].metrics.size(); ++k) {
      EXPECT_EQ(a.validations[i].metrics[k].value, b.validations[i].metrics[k].value);
    }
  }
}

inline void expect_same_history(const TrainingResult& a, const TrainingResult& b) {
  expect_same_results(a, b);
  for (size_t i = 0; i < std::min(a.iterations.size(), b.iterations.size()); ++i) {
    EXPECT_EQ(a.iterations[i].chain, b.iterations[i].chain) << "iteration " << i + 1;
  }
}

}  // namespace lockstep::testing
