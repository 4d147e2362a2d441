// Which kernels of a back end may be used: those that exist and have run on hardware.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/backends/verified.h"

namespace lockstep::kernels {

// Support of one entry of a Table.
struct KernelSupport {
  std::string_view name;  // of the entry, such as "convolution"
  bool present = false;
  const cuda::Verified* verified = nullptr;  // where it has run; null if nowhere
  bool unlocked = false;                     // usable without a verified run
  bool optional = false;                     // slower entries can replace it
  bool usable() const { return present && (verified || unlocked); }
};

// The support of all entries, in the order of Table. `unlocked` has names separated by commas, or
// "all", as in LOCKSTEP_UNVERIFIED. Throws InvalidArgument for an unknown name.
std::vector<KernelSupport> kernel_support(const Table& table,
                                          std::span<const cuda::Verified> verified,
                                          std::string_view unlocked);

// Whether kernels may compute with `narrow` (bf16 or f16): every kernel that supports the type has
// been verified with it, or `unlocked` names the type.
bool narrow_usable(const Table& table, DType narrow, std::span<const cuda::Verified> verified,
                   std::string_view unlocked);

// Whether NCCL may be used, by the same rule under the name "nccl". NCCL connects a GPU with those
// of other processes.
bool nccl_usable(std::span<const cuda::Verified> verified, std::string_view unlocked);

// The table with each unusable entry replaced by a function that throws Unsupported with the reason
// and a hint. Unusable optional entries are null.
Table guarded(const Table& table, std::span<const cuda::Verified> verified,
              std::string_view unlocked);

}  // namespace lockstep::kernels
