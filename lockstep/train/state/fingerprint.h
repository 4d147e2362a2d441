// The numerics fingerprint: everything other than options and data that the bits of a result depend
// on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep {

struct FingerprintEntry {
  std::string name, value;
  friend bool operator==(const FingerprintEntry&, const FingerprintEntry&) = default;
};

// Processor vendor, family and model, cache sizes, the instruction set that oneDNN uses, versions
// of oneDNN, the C library and the image libraries, and the build id. Computed once; thread-safe.
const std::vector<FingerprintEntry>& numerics_fingerprint();
// The same for a training on a device. A GPU adds its model, its driver and its libraries.
std::vector<FingerprintEntry> numerics_fingerprint(Device device);

// "oneDNN: 2.6.3 here, 3.1.0 there; ...", or "" if all entries agree.
std::string fingerprint_difference(const std::vector<FingerprintEntry>& here,
                                   const std::vector<FingerprintEntry>& there);

// Throws InvalidArgument naming an environment variable that changes arithmetic: ONEDNN_* and
// DNNL_* for math mode and instruction set, NVIDIA_TF32_OVERRIDE, GLIBC_TUNABLES with glibc.cpu.
void refuse_stray_environment();

}  // namespace lockstep
