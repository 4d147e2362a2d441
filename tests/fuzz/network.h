// Helpers for targets of files with parameters.
#pragma once

#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep::fuzz {

// A network with parameters and state.
inline Network small_network() {
  Network network({image_input({.height = 4, .width = 4, .channels = 1}),
                   convolution2d({.filters = 2, .kernel = {3, 3}}), batch_normalization(), relu(),
                   fully_connected({.units = 3}), softmax()});
  network.initialize(1);
  return network;
}

}  // namespace lockstep::fuzz
