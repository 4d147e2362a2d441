// The file that this process runs, and what was installed with it.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The path of this executable, also if the file was replaced since; "" if the system does not say.
// Never throws.
std::string own_executable();

// A path at which this process reads its own file, as it was when the process started.
inline constexpr const char* own_executable_file = "/proc/self/exe";

// The folders where libraries that were installed with an executable can lie, in the order of the
// search: its own, and those of libraries next to it. Never throws.
std::vector<std::string> library_folders_of(const std::string& executable);

// The library of CUDA kernels in these folders; "" if there is none. Never throws.
inline constexpr const char* cuda_library_name = "liblockstep_cuda.so";
std::string cuda_library_of(const std::string& executable);

}  // namespace lockstep
