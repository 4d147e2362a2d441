#include "lockstep/engine/kernels/shapes/copy_chunks.h"

#include <cstring>

namespace lockstep::kernels::cpu {

void copy_chunks(const CopyChunk* chunks, int64_t count, void* /*stream*/) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(chunks[i].to, chunks[i].from, static_cast<size_t>(chunks[i].bytes));
  }
}

}  // namespace lockstep::kernels::cpu
