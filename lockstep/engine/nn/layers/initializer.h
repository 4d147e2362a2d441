// Initial values of parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// Names of the initializers, which ParameterSpec explains.
const std::vector<std::string>& initializer_names();

// The name of an initializer that sets all elements to `value`; for layers with a field of such a
// value, not among the names.
std::string constant_initializer(double value);

// Fills a row-major tensor. Element e is a function of (seed, name, e) only. For "orthogonal", the
// whole tensor is a function of (seed, name). Throws InvalidArgument for an unknown initializer.
void initialize(Tensor& tensor, const ParameterSpec& spec, uint64_t seed, const std::string& name);

}  // namespace lockstep
