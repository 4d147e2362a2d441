// Trainings of a network whose first layers are frozen, with kept results or without.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/support.h"

namespace lockstep::testing {

inline constexpr const char* kResultsAreKept = "the results of frozen layers are kept";
inline constexpr const char* kResultsAreComputed = "are computed in each iteration, because ";

// The results of "joined" and "first" are read by layers that learn. "wide" has enough channels and
// columns for images in lanes.
inline Network half_frozen() {
  Network n;
  n.add(image_input({.height = 28, .width = 28, .channels = 1}), "input");
  n.add(convolution2d({.filters = 6, .kernel = {3, 3}, .stride = {2, 2}, .padding = same_padding}),
        "first");
  n.add(batch_normalization({.statistics = "moving"}), "norm");
  n.add(relu(), "relu");
  n.add(convolution2d({.filters = 6, .kernel = {3, 3}, .padding = same_padding}), "second");
  n.add(addition(), "joined", {"second", "relu"});
  n.add(dropout({.probability = 0.2}), "dropout");
  n.add(convolution2d({.filters = 12, .kernel = {3, 3}, .padding = same_padding}), "third");
  n.add(batch_normalization(), "live");
  n.add(convolution2d({.filters = 12, .kernel = {1, 1}}), "side", {"first"});
  n.add(addition(), "sum", {"live", "side"});
  n.add(fully_connected({.units = 10}), "head");
  n.add(softmax(), "softmax");
  n.initialize(3);
  return n;
}

inline TrainingOptions half_frozen_options(int64_t threads = 2) {
  TrainingOptions options;
  options.mini_batch_size = 32;
  options.shards.size = 16;
  options.max_epochs = 3;
  options.threads = threads;
  options.solver.initial_learning_rate = 0.02;
  options.solver.gradient_threshold = 1;
  options.validation.frequency = 3;
  options.shards.check_frequency = 2;
  options.freeze = {"first", "norm", "second"};
  return options;
}

inline TrainingData kept_digits() {
  return {.training = some_digits(100), .validation = some_digits(70, 300)};
}

struct KeptRun {
  TrainingResult result;
  std::vector<std::string> notices;

  bool says(const std::string& text) const {
    return std::ranges::any_of(
        notices, [&](const std::string& notice) { return notice.find(text) != notice.npos; });
  }
};

inline KeptRun kept_run(KeepFeatures keep, TrainingOptions options,
                        const TrainingData& data = kept_digits(),
                        const std::function<Network()>& make = half_frozen,
                        TrainingControl control = {}) {
  Network network = make();
  Recorder recorder;
  options.data.keep_features = keep;
  control.observers = {&recorder};
  TrainingResult result = train(network, data, options, control);
  return {std::move(result), recorder.notices};
}

inline void expect_same_runs(const KeptRun& a, const KeptRun& b) {
  EXPECT_EQ(a.result.digest, b.result.digest);
  EXPECT_EQ(a.result.network_digest, b.result.network_digest);
  ASSERT_EQ(a.result.validations.size(), b.result.validations.size());
  for (size_t i = 0; i < a.result.validations.size(); ++i) {
    EXPECT_EQ(a.result.validations[i].loss, b.result.validations[i].loss);
  }
}

}  // namespace lockstep::testing
