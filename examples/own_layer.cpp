// A custom layer made of ops: a gated convolution, whose output is multiplied by a gate that a
// second convolution computes (Dauphin et al. 2017). Its state is the average opening of the gates.
// Like any other layer, it trains with any number of threads and can be saved in model files.
#include <cstdio>

#include "lockstep/lockstep.h"

using namespace lockstep;

struct GatedConvolution2d {
  static constexpr const char* kType = "gated_convolution2d";
  static constexpr const char* kHelp = "convolution times the sigmoid of another one";
  int64_t filters = 1, kernel = 3;

  void visit(FieldVisitor& v) {
    v.integer("filters", filters, "number of filters", {.min = 1});
    v.integer("kernel", kernel, "rows and columns of a filter", {.min = 1});
  }

  Value build(LayerBuilder& layer, Value x) const {
    const auto convolved = [&](const std::string& name) {
      const Value weights = layer.parameter(name, {filters, x.shape()[1], kernel, kernel});
      const Value bias = layer.parameter(name + "_bias", {filters}, "zeros");
      return ops::convolution2d(x, weights, bias);
    };
    const Value gate = ops::sigmoid(convolved("gate"));
    layer.follow_mean(layer.state("openness", {}), ops::mean(gate));
    return convolved("weights") * gate;
  }
};

int main() {
  register_layer<GatedConvolution2d>();
  const auto parts = split_each_label(builtin_digits(), {0.2, 0.1}, /*seed=*/0);
  Network network(
      {image_input(
           {.height = 28, .width = 28, .channels = 1, .normalization = "rescale-symmetric"}),
       custom_layer(GatedConvolution2d{.filters = 8, .kernel = 5}),
       max_pooling2d({.pool = {4, 4}, .stride = {4, 4}}), fully_connected({.units = 10}),
       softmax()});
  network.initialize(/*seed=*/0);
  const TrainingOptions options{.max_epochs = 3, .solver = {.initial_learning_rate = 0.05}};
  const auto result = train(network, {.training = parts[0]}, options);
  save_model(local_files(), "gated.safetensors", network, parts[0]->classes());

  Network loaded = load_model(local_files(), "gated.safetensors").network;
  std::printf("%sheld-out accuracy %.1f %%, gates open by %.2f, digest %s\n",
              loaded.summary().c_str(), 100 * evaluate(loaded, parts[1]).accuracy,
              static_cast<double>(loaded.state_value("gated_convolution2d_1.openness").item()),
              result.digest.to_string().c_str());
}
