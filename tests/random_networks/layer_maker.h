// Random layers with fields that fit what they are put on.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/shape.h"
#include "tests/random_networks/dice.h"

namespace lockstep::random_networks {

// A layer's result in a network that is being made.
struct Value {
  std::string name;
  Shape shape;  // of one observation
  bool read = false;
};

// Limits of what one layer may cost for one observation.
struct Budget {
  int64_t elements = 0;    // of its result
  int64_t parameters = 0;  // elements
  int64_t multiplications = 0;
};

// What a layer is and costs; nothing where the library finds a problem.
struct Measured {
  Shape shape;
  int64_t parameters = 0, multiplications = 0;
};
std::optional<Measured> measure(const nlohmann::ordered_json& layer,
                                const std::vector<Shape>& inputs);

// Types of layers that take one input of this shape.
std::vector<std::string> types_for(const Shape& shape);

// The type's fields, drawn at random. They need not fit: see measure().
nlohmann::ordered_json draw_layer(Dice& dice, const std::string& type, const Shape& input);

// An input layer of a random kind. `large`: images of hundreds of rows or columns.
nlohmann::ordered_json draw_input(Dice& dice, bool large);

}  // namespace lockstep::random_networks
