// A parallel loop that trains one network in each pass: digits with several learning rates, each
// network on one worker. The table does not depend on the number of workers.
//
// usage: one_model_per_worker [EPOCHS]
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

struct Outcome {
  double rate = 0, accuracy = 0;
  int worker = 0;
  std::string digest;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(rate, accuracy, worker, digest);
  }
};

Outcome train_with(double rate, int64_t epochs) {
  const auto parts = split_each_label(builtin_digits(), {0.8, 0.1}, /*seed=*/0);
  Network network({image_input({.height = 28, .width = 28, .channels = 1}),
                   convolution2d({.filters = 8, .kernel = {5, 5}, .stride = {2, 2}}),
                   batch_normalization(), relu(), fully_connected({.units = 10}), softmax()});
  network.initialize(/*seed=*/0);
  const TrainingOptions options{.max_epochs = epochs,
                                .threads = 1,  // the other workers train networks at the same time
                                .solver = {.initial_learning_rate = rate},
                                .validation = {.frequency = 0}};  // once per epoch
  TrainingControl control;
  control.stop = task_cancelled;
  const auto result =
      train(network, {.training = parts[0], .validation = parts[1]}, options, control);
  return {rate, result.validations.back().accuracy, task_worker(),
          result.network_digest.to_string()};
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  const int64_t epochs = argc > 1 ? std::atoi(argv[1]) : 3;
  Pool& pool = default_pool([](const std::string& text) { std::printf("%s\n", text.c_str()); });
  const std::vector<double> rates{0.3, 0.1, 0.03, 0.01, 0.003};
  const auto outcomes = parallel_map_with(
      {.chunk = 1}, pool, static_cast<int64_t>(rates.size()),
      [](int64_t i, const std::vector<double>& all, int64_t n) {
        return train_with(all[static_cast<size_t>(i)], n);
      },
      rates, epochs);
  std::printf("%8s  %8s  %s\n", "rate", "accuracy", "network");
  double best = 0;
  for (const Outcome& o : outcomes) {
    std::printf("%8g  %7.2f%%  %s\n", o.rate, 100 * o.accuracy, o.digest.c_str());
    best = std::max(best, o.accuracy);
  }
  return best > 0.97 ? 0 : 1;
}
