// Inputs of ops with an optional bias.
#pragma once

#include <vector>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep::ops {

// Returns x, weights and, if it is defined, bias.
template <class T>
std::vector<T> with_bias(const T& x, const T& weights, const T& bias) {
  std::vector<T> inputs{x, weights};
  if (bias.defined()) inputs.push_back(bias);
  return inputs;
}

// Op::tangent() of a product of x and weights, with an optional bias: the sum of the products with
// each factor's change in its place. `product`: the op without a bias.
std::vector<Value> product_tangent(const OpPtr& product, std::span<const Value> inputs,
                                   std::span<const Value> changes);

}  // namespace lockstep::ops
