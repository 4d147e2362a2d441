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

// Fills a row-major tensor. Element e is a function of (seed, name, e) only. For "orthogonal", the
// whole tensor is a function of (seed, name). Throws InvalidArgument for an unknown initializer.
void initialize(Tensor& tensor, const ParameterSpec& spec, uint64_t seed, const std::string& name);

}  // namespace lockstep
