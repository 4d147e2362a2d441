// Transposition of small blocks of floats, for conversions of layout.
#pragma once

#include <cstdint>
#include <cstring>

#include "lockstep/base/numeric/clones.h"

namespace lockstep::kernels::cpu {

// Transposes four elements of each of four vectors: to[i * step + k] = from[k][first + i] for i and
// k below 4. Addresses may have any alignment. Thread-safe.
LOCKSTEP_INLINE void transpose_four(const float* const* from, int64_t first, float* to,
                                    int64_t step) {
  using Four = float __attribute__((vector_size(4 * sizeof(float)), may_alias));
  Four w[4];
  for (int k = 0; k < 4; ++k) std::memcpy(&w[k], from[k] + first, sizeof w[k]);
  const Four a = __builtin_shufflevector(w[0], w[1], 0, 4, 1, 5),
             b = __builtin_shufflevector(w[0], w[1], 2, 6, 3, 7),
             c = __builtin_shufflevector(w[2], w[3], 0, 4, 1, 5),
             d = __builtin_shufflevector(w[2], w[3], 2, 6, 3, 7);
  const Four columns[] = {
      __builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
      __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * step, &columns[i], sizeof columns[i]);
}

}  // namespace lockstep::kernels::cpu
