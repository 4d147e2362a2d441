// How the pieces of a sum over shards (SumOverShards in kernel.h) divide its results.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep::kernels {

// Piece i writes this many indices of dimension 0 of each result, from index i * kUnitsOfPiece on.
// A multiple of the rows of a tile on every instruction set, and of the units of a panel.
inline constexpr int64_t kUnitsOfPiece = 48;

// Columns of a block begin at a multiple of this many.
inline constexpr int64_t kBlockColumns = 256;

// The row-major elements of a result that a piece writes. `units`: its dimension 0. `each`:
// elements of one unit.
inline IndexRange elements_of_piece(int64_t units, int64_t each, int64_t piece) {
  const int64_t first = piece * kUnitsOfPiece;
  return {first * each, std::min(kUnitsOfPiece, units - first) * each};
}

}  // namespace lockstep::kernels
