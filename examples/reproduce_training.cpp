// Trains a denoising autoencoder twice with deterministic algorithms and twice without them, and
// compares the parameters.
//
// usage: reproduce_training [OBSERVATIONS [EPOCHS]]   (all 10,000 digits, 5 epochs)
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

LayerPtr convolution(int64_t filters, int64_t kernel = 3) {
  return convolution2d({.filters = filters, .kernel = {kernel, kernel}, .padding = same_padding});
}

LayerPtr halve() { return max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}); }

LayerPtr doubled(int64_t filters) {
  return transposed_convolution2d(
      {.filters = filters, .kernel = {4, 4}, .stride = {2, 2}, .padding = same_padding});
}

Network autoencoder() {
  Network network{
      image_input({.height = 32, .width = 32, .channels = 1, .normalization = "rescale-zero-one"}),
      convolution(8),
      relu(),
      halve(),
      convolution(16),
      relu(),
      halve(),
      convolution(32),
      relu(),
      halve(),
      doubled(32),
      relu(),
      doubled(16),
      relu(),
      doubled(8),
      relu(),
      convolution(1, 1),
      clipped_relu({.ceiling = 1})};
  network.set_loss("mean_squared_error");
  return network;
}

struct Trained {
  Network network;
  double loss = 0;  // of the last validation
};

Trained train_once(const std::vector<DatastorePtr>& parts, int64_t epochs) {
  Trained result{autoencoder()};
  result.network.initialize(/*seed=*/0);
  const TrainingOptions options{
      .max_epochs = epochs,
      .mini_batch_size = 500,
      .seed = 0,
      .solver = {.type = "adam"},
      .validation = {.frequency = 0, .patience = 5}};  // frequency 0: once per epoch
  // Images are also the targets: the network maps noisy digits to the original digits.
  TrainingData data{.training = parts[0], .validation = parts[1]};
  data.training_targets = parts[0];
  data.validation_targets = parts[1];
  data.noise.salt_and_pepper = 0.1;
  result.loss = train(result.network, data, options).validations.back().loss;
  return result;
}

// Appends the differences of the first layer's weights. Returns whether all parameters are equal.
bool compare(const Network& a, const Network& b, std::vector<float>& differences) {
  bool equal = true;
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    const auto x = a.parameters()[i].value.to_vector(), y = b.parameters()[i].value.to_vector();
    equal &= std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    if (i > 0) continue;
    for (size_t k = 0; k < x.size(); ++k) differences.push_back(x[k] - y[k]);
  }
  return equal;
}

}  // namespace

int main(int count, char** words) {
  try {
    const int64_t observations = count > 1 ? std::atoll(words[1]) : 10000;
    const int64_t epochs = count > 2 ? std::atoll(words[2]) : 5;
    const auto digits =
        split_each_label(builtin_digits(), {static_cast<double>(observations) / 10000}, 0)[0];
    const auto parts = split_each_label(resized(digits, 32, 32), {0.95}, /*seed=*/0);

    const bool before = deterministic();
    for (const bool wanted : {true, false}) {
      set_deterministic(wanted);
      const Trained first = train_once(parts, epochs), second = train_once(parts, epochs);
      std::vector<float> differences;
      const bool equal = compare(first.network, second.network, differences);
      std::printf("deterministic %s: validation loss %.5f and %.5f, parameters %s\n",
                  wanted ? "on" : "off", first.loss, second.loss,
                  equal ? "equal, bit for bit" : "differ");
      const BarChartOptions chart{.title = "differences of the first layer's weights",
                                  .x_label = "element of convolution2d_1.weights",
                                  .y_label = "first training - second"};
      std::fputs(bar_chart_text(differences, chart).c_str(), stdout);
      const std::string file = std::string("differences-") + (wanted ? "on" : "off") + ".svg";
      write_atomically(local_files(), file, bar_chart_svg(differences, chart));
      if (wanted && !equal) {
        std::fprintf(stderr, "error: deterministic trainings differ\n");
        return 1;
      }
    }
    set_deterministic(before);
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
