// Random layers with fields that fit their input.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/numeric/shape.h"
#include "tests/random_networks/dice.h"

namespace lockstep::random_networks {

// A layer's result in a network under construction.
struct Value {
  std::string name;
  Shape shape;  // of one observation; of a sequence of a step
  bool read = false;
  int64_t steps = 0;  // of a sequence, into which an image was made
};

// Cost limits of one layer for one observation.
struct Budget {
  int64_t elements = 0;    // of its result
  int64_t parameters = 0;  // elements
  int64_t multiplications = 0;
};

// A layer's result and cost; empty if the library finds a problem.
struct Measured {
  Shape shape;
  int64_t parameters = 0, multiplications = 0;
};
// `steps`: of the input, if it is a sequence.
std::optional<Measured> measure(const nlohmann::ordered_json& layer,
                                const std::vector<Shape>& inputs, int64_t steps = 0);

// Layer types with one input of this shape. `known`: with those of known networks, too.
std::vector<std::string> types_for(const Shape& shape, bool known);

// The type's fields at random. They need not fit: see measure().
nlohmann::ordered_json draw_layer(Dice& dice, const std::string& type, const Shape& input);

// A random input layer. `large`: images of hundreds of rows or columns.
nlohmann::ordered_json draw_input(Dice& dice, bool large);

}  // namespace lockstep::random_networks
