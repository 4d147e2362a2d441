// The CUDA kernels that have run on hardware and passed the tests of ops there. Kernels that are
// not listed are refused unless LOCKSTEP_UNVERIFIED names them; see docs/design.md.
#pragma once

#include <array>
#include <string_view>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep::kernels::cuda {

struct Verified {
  std::string_view name;  // of the entry in kernels::Table, or "nccl"
  DType dtype = DType::f32;
  std::string_view gpu;   // "NVIDIA H200"
  std::string_view date;  // "2027-01-31"
};

inline constexpr std::array<Verified, 0> kVerified{};

}  // namespace lockstep::kernels::cuda
