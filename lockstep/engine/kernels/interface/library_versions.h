// Dependencies of the kernels' results outside this project's code.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::kernels {

// The environment variable that limits the instruction sets of this process. Its only value is
// "AVX2": oneDNN and the kernels written with Highway then compute as on a processor without
// AVX-512. Loops that the compiler vectorizes (base/numeric/clones.h) are not limited; their bits
// are the same. It is read when the program starts. For comparisons and tests; the numerics
// fingerprint shows it.
inline constexpr const char* kMaxCpuIsa = "LOCKSTEP_MAX_CPU_ISA";

// Names and versions of the libraries that compute, and the instruction set that they use on this
// machine.
std::vector<std::pair<std::string, std::string>> library_versions();

// Which kernels compute on this machine's processor, by what they compute. Thread-safe.
std::vector<std::pair<std::string, std::string>> chosen_kernels();

}  // namespace lockstep::kernels
