// The numerics fingerprint: all that the bits of a result depend on besides options and data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"

namespace lockstep {

struct FingerprintEntry {
  std::string name, value;
  friend bool operator==(const FingerprintEntry&, const FingerprintEntry&) = default;
};

// Processor vendor, family and model, cache sizes, the instruction set that oneDNN uses, versions
// of oneDNN, the C library and the image libraries, and the build id. Computed once; thread-safe.
const std::vector<FingerprintEntry>& numerics_fingerprint();
// The same for a training on a device: a GPU adds its model, its driver and the libraries it
// computes with.
std::vector<FingerprintEntry> numerics_fingerprint(Device device);

// "oneDNN: 2.6.3 here, 3.1.0 there; ..." or "" when all entries agree.
std::string fingerprint_difference(const std::vector<FingerprintEntry>& here,
                                   const std::vector<FingerprintEntry>& there);

// Throws InvalidArgument naming an environment variable that changes arithmetic (ONEDNN_* and
// DNNL_* math mode and instruction set, NVIDIA_TF32_OVERRIDE, GLIBC_TUNABLES for the processor).
void refuse_stray_environment();

}  // namespace lockstep
