// What the kernels' results depend on besides the code of this project.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::kernels {

// Names and versions of the libraries that compute, and the instruction set they use here.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace lockstep::kernels
