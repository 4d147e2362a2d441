// Trains a small network on the built-in digits and classifies held-out ones.
#include <cstdio>

#include "lockstep/lockstep.h"

int main() {
  using namespace lockstep;
  try {
    const auto parts = split_each_label(builtin_digits(), {0.8, 0.1}, /*seed=*/0);
    Network network({image_input({.height = 28, .width = 28, .channels = 1}),
                     convolution2d({.filters = 20, .kernel = {5, 5}}), batch_normalization(),
                     relu(), max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                     fully_connected({.units = 10}), softmax()});
    network.initialize(/*seed=*/0);

    const TrainingOptions options{.max_epochs = 2,
                                  .validation = {.frequency = 0}};  // once per epoch
    const auto result = train(network, {.training = parts[0], .validation = parts[1]}, options);
    for (const auto& v : result.validations) {
      std::printf("epoch %d: validation accuracy %.1f %%\n", static_cast<int>(v.epoch),
                  100 * v.accuracy);
    }
    std::printf("test accuracy %.1f %%, digest %s\n", 100 * evaluate(network, parts[2]).accuracy,
                result.digest.to_string().c_str());
    save_model(local_files(), "digits.safetensors", network, parts[0]->classes());
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
