// How the layers of a network are built: to learn what they declare, and to lower them to a graph.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/nn/lowering.h"

namespace lockstep {

// The shape of n observations of an input layer's data.
Shape data_shape(const Layer& input, int64_t n);

// What a layer declares, and the shape of its result.
struct DeclaredLayer {
  std::vector<ParameterSpec> parameters;
  std::vector<StateSpec> states, row_states;  // shapes of the latter: of a row
  Shape result;
};

// Builds a layer for inputs of these shapes, in training mode, to learn what it declares. Throws
// the error of an op about its inputs without the layer's name, which the caller adds.
DeclaredLayer declare_layer(const Layer& layer, const std::string& name,
                            std::span<const Shape> inputs);

// The graph that receives a layer, and what the layer has declared.
struct LayerLowering {
  Graph& graph;
  const std::string& name;  // the layer's, in its network
  bool training = false;
  // What the layer has declared for one observation, and the numbers of the first ones.
  const std::vector<ParameterSpec>& parameters;
  const std::vector<StateSpec>& states;
  const std::vector<StateSpec>& row_states;
  int first_parameter = 0, first_state = 0;
  std::vector<MovingStatistics>& statistics;  // receives the rules of states, in training
  // Receives the states by row, named "<layer>.<name>". Null: they are constants.
  std::vector<Carry>* carries = nullptr;
};

// Adds a layer to a graph and returns the value of its result. Throws InvalidArgument if the layer
// requests what it has not declared, or if two builds differ.
int lower_layer(const Layer& layer, const LayerLowering& lowering, std::span<const int> inputs);

}  // namespace lockstep
