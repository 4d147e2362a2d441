// Copies of many chunks of memory in one launch. The list is in the memory of the back end, as are
// the chunks. Chunks do not overlap. A chunk of at most kCopyChunk bytes keeps all of a GPU busy.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

struct CopyChunk {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
};
inline constexpr int64_t kCopyChunk = 16384;

}  // namespace lockstep::kernels
