// Weights and biases of layers: their fields, and their declaration.
#pragma once

#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers/initializer.h"

namespace lockstep {

template <class Options>
void visit_weights(FieldVisitor& v, Options& o, const char* bias_help) {
  v.flag("bias", o.bias, bias_help);
  v.text("weights_initializer", o.weights_initializer, "initializer of the weights",
         initializer_names());
  v.text("bias_initializer", o.bias_initializer, "initializer of the bias", initializer_names());
  v.number("weights_l2_factor", o.weights_l2_factor, "factor of the option l2 for the weights",
           {.min = 0});
  v.number("bias_l2_factor", o.bias_l2_factor, "factor of the option l2 for the bias", {.min = 0});
  v.number("weights_learning_rate_factor", o.weights_learning_rate_factor,
           "factor of the learning rate for the weights; 0: frozen", {.min = 0});
  v.number("bias_learning_rate_factor", o.bias_learning_rate_factor,
           "factor of the learning rate for the bias; 0: frozen", {.min = 0});
}

struct Weights {
  Value weights, bias;  // an undefined bias: none
};

// Declares weights of a shape and, if the options say so, a bias of one value for each output.
template <class Options>
Weights declare_weights(LayerBuilder& layer, const Options& o, const Shape& shape, int64_t outputs,
                        int64_t fan_in, int64_t fan_out) {
  Weights made;
  made.weights = layer.parameter({"weights", shape, o.weights_initializer, fan_in, fan_out,
                                  o.weights_l2_factor, o.weights_learning_rate_factor});
  if (o.bias) {
    made.bias = layer.parameter({"bias", Shape{outputs}, o.bias_initializer, fan_in, fan_out,
                                 o.bias_l2_factor, o.bias_learning_rate_factor});
  }
  return made;
}

}  // namespace lockstep
