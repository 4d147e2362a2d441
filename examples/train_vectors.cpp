// Trains on feature vectors from memory: the points of two intertwined spirals.
#include <cmath>
#include <cstdio>

#include "lockstep/lockstep.h"

int main() {
  using namespace lockstep;
  try {
    ArrayBlock points{.count = 1000, .shape = {2}};
    ImageLabels labels{.classes = {"one", "other"}};
    for (int64_t i = 0; i < points.count; ++i) {
      const auto turn = static_cast<float>(i / 2) / 500.0f * 9.0f;
      const float side = i % 2 == 0 ? 1.0f : -1.0f;
      points.values.push_back(side * (turn + 0.5f) * std::cos(turn));
      points.values.push_back(side * (turn + 0.5f) * std::sin(turn));
      labels.labels.push_back(i % 2);
    }
    const auto parts = split_each_label(array_datastore(points, labels), {0.8}, /*seed=*/0);
    Network network({feature_input({.features = 2, .normalization = "z-score"}),
                     fully_connected({.units = 64}), relu(), fully_connected({.units = 64}), relu(),
                     fully_connected({.units = 2}), softmax()});
    network.initialize(/*seed=*/0);

    const TrainingOptions options{.max_epochs = 80,
                                  .mini_batch_size = 50,
                                  .solver = {.type = "adam", .initial_learning_rate = 0.01}};
    const auto result = train(network, {.training = parts[0], .validation = parts[1]}, options);
    const double accuracy = evaluate(network, parts[1]).accuracy;
    std::printf("accuracy %.1f %%, digest %s\n", 100 * accuracy, result.digest.to_string().c_str());
    return accuracy >= 0.97 ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
