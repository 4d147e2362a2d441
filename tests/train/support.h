// Helpers for the tests of lockstep/train.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/trainer.h"
#include "tests/base/breaking_files.h"
#include "tests/data/support.h"

namespace lockstep::testing {

// `n` built-in digits, classes in turn. `from` selects others.
inline DatastorePtr some_digits(int64_t n, int64_t from = 0) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < n; ++i) indices.push_back(i % 10 * 1000 + from + i / 10);
  return subset(builtin_digits(), indices);
}

// A small network with everything that the law covers: batch normalization, dropout, pooling.
inline Network small_classifier(uint64_t seed = 1) {
  Network network{
      image_input({.height = 28, .width = 28, .channels = 1}),
      convolution2d({.filters = 8, .kernel = {5, 5}, .stride = {2, 2}, .padding = same_padding}),
      batch_normalization(),
      relu(),
      max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
      dropout({.probability = 0.1}),
      fully_connected({.units = 10}),
      softmax()};
  network.initialize(seed);
  // For loops: pixels as they are. Trainings set their own statistics.
  const Tensor offset = network.state_value("image_input_1.offset");
  offset.copy_from(Tensor::zeros(offset.shape(), DType::f32));
  return network;
}

// 60 digits in mini-batches of 20 (three per epoch), shards of 7, 7 and 6.
inline TrainingOptions small_options() {
  TrainingOptions options;
  options.solver.initial_learning_rate = 0.05;
  options.mini_batch_size = 20;
  options.shards.size = 7;
  options.max_epochs = 2;
  options.threads = 2;
  options.validation.frequency = 0;
  return options;
}

// Records all events.
class Recorder : public TrainingObserver {
 public:
  void start(const TrainingStart& s) override { starts.push_back(s); }
  void iteration(const IterationRecord& r) override {
    iterations.push_back(r);
    if (on_iteration) on_iteration(r);
  }
  void validation(const ValidationRecord& r) override { validations.push_back(r); }
  void checkpoint(const std::string& path, int64_t iteration) override {
    checkpoints.emplace_back(path, iteration);
  }
  void notice(const std::string& text) override { notices.push_back(text); }

  std::vector<TrainingStart> starts;
  std::vector<IterationRecord> iterations;
  std::vector<ValidationRecord> validations;
  std::vector<std::pair<std::string, int64_t>> checkpoints;
  std::vector<std::string> notices;
  std::function<void(const IterationRecord&)> on_iteration;
};

}  // namespace lockstep::testing
