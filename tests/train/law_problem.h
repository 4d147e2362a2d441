// The training for tests of the law.
#pragma once

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/options/options.h"
#include "tests/train/law_network.h"

namespace lockstep::testing {

// Awkward sizes on purpose: 100 observations in shards of at most 7 make 15 shards of two sizes,
// and 370 training images leave a partial mini-batch.
inline constexpr int64_t law_mini_batch = 100, law_shard = 7;
inline constexpr int64_t law_iterations = 12;  // 3 epochs of 4

inline TrainingData law_data() {
  std::vector<int64_t> some, others;
  for (int64_t i = 0; i < 370; ++i) some.push_back(i * 27);
  for (int64_t i = 0; i < 101; ++i) others.push_back(i * 97 + 1);
  TrainingData data;
  data.training = subset(builtin_digits(), some);
  data.validation = subset(builtin_digits(), others);
  data.augmentation.reflect_x = true;
  data.augmentation.translate_x = {-3, 3};
  data.augmentation.translate_y = {-2, 4};
  return data;
}

inline TrainingOptions law_options(int64_t threads) {
  TrainingOptions options;
  options.mini_batch_size = law_mini_batch;
  options.shards.size = law_shard;
  options.max_epochs = 3;
  options.solver.initial_learning_rate = 0.05;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.validation.frequency = 5;
  options.seed = 5;
  options.threads = threads;
  return options;
}

inline TrainingProblem law_problem() { return {law_network(), law_data()}; }

}  // namespace lockstep::testing
