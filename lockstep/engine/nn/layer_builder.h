// How the layers of a network are built: to learn what they declare, and to lower them to a graph.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/nn/lowering.h"

namespace lockstep {

// The shape of n observations of an input layer's data; of sequences with `steps` steps.
Shape data_shape(const Layer& input, int64_t n, int64_t steps);

// A value that a layer receives or gives, with one observation.
struct LayerValue {
  Shape shape;  // of a sequence 1 x steps x ..., with any number of steps
  DType type = DType::f32;
  bool sequence = false;

  // Of one observation; of sequences of one step.
  Shape each() const;
  // "3x32x32", "steps x 12", "steps"
  std::string to_string() const;
};

// What a layer declares, and its result.
struct DeclaredLayer {
  std::vector<ParameterSpec> parameters;
  std::vector<StateSpec> states, row_states;  // shapes of the latter: of a row
  std::vector<StateSpec> steps;  // that are kept of earlier segments; shapes: of a step
  int64_t most_steps = std::numeric_limits<int64_t>::max();  // LayerBuilder::limit_steps()
  LayerValue result;
};

// Builds a layer for such inputs, in training mode, to learn what it declares, which must not
// depend on the number of steps. `in_segments`: for a network that runs segment by segment, which
// some layers refuse. Throws the error of an op about its inputs without the layer's name, which
// the caller adds.
DeclaredLayer declare_layer(const Layer& layer, const std::string& name,
                            std::span<const LayerValue> inputs, bool in_segments = false);

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
  bool sequence = false;  // the layer's result is a sequence
  // In a network that runs segment by segment: the value of the numbers of earlier steps, and the
  // most steps of an observation in all its segments. -1: it does not.
  int earlier = -1;
  int64_t capacity = 0;
};

// The graph that a build extends. In a build that declares, `declared` receives its requests.
struct LayerBuilder::Target {
  std::string_view where;  // in errors: the layer's type; of a network's layer, its name
  LayerLowering lowering;
  DeclaredLayer* declared = nullptr;
};

// Throws InvalidArgument about a layer of this type or name.
[[noreturn]] void refuse_layer(std::string_view type, const std::string& what,
                               const std::string& hint = {});
inline constexpr const char* why_builds_agree =
    "build() may depend only on the layer's fields and the shape of an observation";

// Adds a layer to a graph and returns its result. Throws InvalidArgument if the layer requests what
// it has not declared, or if two builds differ.
LoweredValue lower_layer(const Layer& layer, const LayerLowering& lowering,
                         std::span<const LoweredValue> inputs);

}  // namespace lockstep
