// Layers before a loss.
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/nn/loss.h"

namespace lockstep {
namespace {

struct Softmax : SoftmaxOptions {
  Value build(LayerBuilder&, Value x) const { return ops::softmax(x); }
};

struct Outputs : OutputsOptions {
  Value build(LayerBuilder&, const std::vector<Value>& x) const {
    if (losses.size() != x.size() || weights.size() != x.size()) {
      throw InvalidArgument("[outputs] received " + std::to_string(x.size()) + " inputs, " +
                                std::to_string(losses.size()) + " losses and " +
                                std::to_string(weights.size()) + " weights",
                            "each input has a loss and a weight");
    }
    std::vector<Value> results;
    for (size_t i = 0; i < x.size(); ++i) {
      check_loss(losses[i]);
      const Value each = x[i].shape().rank() == 2 ? x[i] : ops::flatten(x[i]);
      results.push_back(losses[i] == "cross_entropy" ? ops::softmax(each) : each);
    }
    return results.size() == 1 ? results[0] : ops::concat(results);
  }
};

}  // namespace

void OutputsOptions::visit(FieldVisitor& v) {
  v.texts("losses", losses,
          "the loss of each input: cross_entropy, mean_squared_error or an expression");
  v.numbers("weights", weights, "the weight of each loss", {.min = 0});
}

LayerPtr outputs(OutputsOptions options) { return custom_layer(Outputs{std::move(options)}); }

LayerPtr softmax() { return custom_layer(Softmax{}); }

LayerInfo layers::outputs_info() { return layer_info<Outputs>(); }
LayerInfo layers::softmax_info() { return layer_info<Softmax>(); }

}  // namespace lockstep
