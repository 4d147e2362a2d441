// Initial values of parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// Names of the initialisers: "glorot": uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot, Bengio
// 2010). "he": normal with variance 2 / fan_in (He et al. 2015). "narrow-normal": normal with
// standard deviation 0.01. "orthogonal": Q of the QR decomposition of a normal matrix (Saxe et al.
// 2014); the smaller of rows and columns is orthonormal. "zeros", "ones".
const std::vector<std::string>& initializer_names();

// Fills a row-major tensor. Element e is a function of (seed, name, e) only. For "orthogonal", the
// whole tensor is a function of (seed, name). Throws InvalidArgument for an unknown initialiser.
void initialize(Tensor& tensor, const ParameterSpec& spec, uint64_t seed, const std::string& name);

}  // namespace lockstep
