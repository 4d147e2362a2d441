// Which kernels of a back end may be used: those that are there and have run on hardware.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/kernels/cuda/verified.h"
#include "lockstep/engine/kernels/table.h"

namespace lockstep::kernels {

// One entry of a table.
struct KernelSupport {
  std::string_view name;  // of the entry: "convolution"
  bool present = false;
  const cuda::Verified* verified = nullptr;  // where it has run
  bool unlocked = false;                     // may be used without
  bool optional = false;                     // others do the same, less fast
  bool usable() const { return present && (verified || unlocked); }
};

// By entry. `unlocked`: names separated by commas, or "all", as in LOCKSTEP_UNVERIFIED. Throws
// InvalidArgument for a name that is none.
std::vector<KernelSupport> kernel_support(const Table& table,
                                          std::span<const cuda::Verified> verified,
                                          std::string_view unlocked);

// Whether kernels compute with `narrow`, bf16 or f16: where all of those that do have run so, or
// `unlocked` names it.
bool narrow_usable(const Table& table, DType narrow, std::span<const cuda::Verified> verified,
                   std::string_view unlocked);

// The same of NCCL, through which a GPU reaches those of other processes: "nccl".
bool nccl_usable(std::span<const cuda::Verified> verified, std::string_view unlocked);

// The table with each entry that must not be used replaced by one that throws Unsupported, saying
// why and what to do; optional ones are null.
Table guarded(const Table& table, std::span<const cuda::Verified> verified,
              std::string_view unlocked);

}  // namespace lockstep::kernels
