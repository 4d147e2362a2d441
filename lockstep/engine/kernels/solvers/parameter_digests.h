// Digests of all parameters, each with its solver state, computed where they are. The digest of a
// parameter is XXH3 (128 bits) of its arrays one after the other: values, then the solver's arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/xxh3.h"
#include "lockstep/engine/kernels/interface/host_device.h"
#include "lockstep/engine/kernels/solvers/solver.h"

namespace lockstep::kernels {

// Arrays of a parameter that are digested.
LOCKSTEP_HOST_DEVICE constexpr int64_t digested_arrays(const ParameterArrays& a) {
  return 1 + (a.first != nullptr) + (a.second != nullptr);
}
LOCKSTEP_HOST_DEVICE constexpr int64_t digested_bytes(const ParameterArrays& a) {
  return digested_arrays(a) * a.count * static_cast<int64_t>(sizeof(float));
}
// Blocks of 1,024 bytes before the last one, whose sums XXH3 combines.
LOCKSTEP_HOST_DEVICE constexpr int64_t digested_blocks(int64_t bytes) {
  return bytes <= xxh3::kShort ? 0 : (bytes - 1) / xxh3::kBlock;
}
// Bytes of a result: two numbers, the digest's high and low half; or, where the sequence has at
// most xxh3::kShort bytes, the sequence itself, padded to whole numbers of 8 bytes.
LOCKSTEP_HOST_DEVICE constexpr int64_t digest_result_bytes(int64_t bytes) {
  return bytes <= xxh3::kShort ? (bytes + 7) / 8 * 8 : 16;
}

struct DigestedParameter {
  int64_t first_block = 0;  // the number of its first block among those of all parameters
  int64_t result = 0;       // the offset of its result
};

// All arrays are in the back end's memory. The arguments stay the same from one call to the next,
// so that it can be recorded. gradient_sum is not used.
struct ParameterDigests {
  const ParameterArrays* arrays = nullptr;        // one per parameter
  const DigestedParameter* parameters = nullptr;  // one per parameter
  int64_t parameter_count = 0;
  const UpdateBlock* blocks = nullptr;  // by block; first: its first byte in the sequence
  int64_t block_count = 0;
  uint64_t* sums = nullptr;      // eight for each block, written
  std::byte* results = nullptr;  // aligned to 8 bytes
};

}  // namespace lockstep::kernels
