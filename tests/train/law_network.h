// The network for tests of the law.
#pragma once

#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep::testing {

// Contains everything that the law covers: sums, statistics, random numbers.
inline Network law_network() {
  Network network({image_input({.height = 28, .width = 28, .channels = 1}),
                   convolution2d({.filters = 9, .kernel = {5, 5}, .stride = {2, 2}}),
                   batch_normalization(), relu(),
                   convolution2d({.filters = 16, .kernel = {3, 3}, .padding = same_padding}),
                   batch_normalization(), relu(), max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                   dropout({.probability = 0.3}), fully_connected({.units = 10}), softmax()});
  network.initialize(11);
  // For loops: pixels as they are. Trainings set their own statistics.
  const Tensor offset = network.state_value("image_input_1.offset");
  offset.copy_from(Tensor::zeros(offset.shape(), DType::f32));
  return network;
}

}  // namespace lockstep::testing
