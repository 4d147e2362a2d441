// Copies of many pieces of memory in one launch. The list is in the memory of the back end, as are
// the pieces. Pieces do not overlap. A piece of at most kCopyPiece bytes keeps all of a GPU busy.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

struct CopyPiece {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
};
inline constexpr int64_t kCopyPiece = 16384;

}  // namespace lockstep::kernels
