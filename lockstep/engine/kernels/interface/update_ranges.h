// How the update ranges of a sum over shards (SumOverShards in kernel.h) divide its results.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep::kernels {

// Update range i writes this many indices of dimension 0 of each result, from index i *
// kUnitsOfUpdateRange on. A multiple of the rows of a tile on every instruction set, and of the
// units of a panel.
inline constexpr int64_t kUnitsOfUpdateRange = 48;

// Columns of a block begin at a multiple of this many.
inline constexpr int64_t kBlockColumns = 256;

// The row-major elements of a result that an update range writes. `units`: its dimension 0. `each`:
// elements of one unit.
inline IndexRange elements_of_update_range(int64_t units, int64_t each, int64_t range) {
  const int64_t first = range * kUnitsOfUpdateRange;
  return {first * each, std::min(kUnitsOfUpdateRange, units - first) * each};
}

}  // namespace lockstep::kernels
