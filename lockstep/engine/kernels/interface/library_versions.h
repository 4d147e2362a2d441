// Dependencies of the kernels' results outside this project's code.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::kernels {

// Names and versions of the libraries that compute, and the instruction set that they use on this
// machine.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace lockstep::kernels
