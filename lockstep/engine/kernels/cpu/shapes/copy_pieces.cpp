#include "lockstep/engine/kernels/shapes/copy_pieces.h"

#include <cstring>

namespace lockstep::kernels::cpu {

void copy_pieces(const CopyPiece* pieces, int64_t count, void* /*stream*/) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(pieces[i].to, pieces[i].from, static_cast<size_t>(pieces[i].bytes));
  }
}

}  // namespace lockstep::kernels::cpu
