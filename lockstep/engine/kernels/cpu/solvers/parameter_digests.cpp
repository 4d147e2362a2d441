#include "lockstep/engine/kernels/solvers/parameter_digests.h"

#include <cstring>

#include "lockstep/base/digest.h"

namespace lockstep::kernels::cpu {

void parameter_digests(const ParameterDigests& all, void* /*stream*/) {
  for (int64_t p = 0; p < all.parameter_count; ++p) {
    const ParameterArrays& a = all.arrays[p];
    std::byte* const result = all.results + all.parameters[p].result;
    const float* const arrays[] = {a.w, a.first, a.second};
    const auto count = static_cast<size_t>(digested_arrays(a));
    const size_t bytes = static_cast<size_t>(a.count) * sizeof(float);
    if (digested_bytes(a) <= xxh3::kShort) {
      for (size_t k = 0; k < count; ++k) std::memcpy(result + k * bytes, arrays[k], bytes);
      continue;
    }
    Digester digester;
    for (size_t k = 0; k < count; ++k) digester.bytes(arrays[k], bytes);
    const Digest digest = digester.finish();
    const uint64_t halves[] = {digest.high, digest.low};
    std::memcpy(result, halves, sizeof halves);
  }
}

}  // namespace lockstep::kernels::cpu
