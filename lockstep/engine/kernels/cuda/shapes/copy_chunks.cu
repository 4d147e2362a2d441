#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/shapes/copy_chunks.h"

namespace lockstep::kernels::cuda {
namespace {

struct alignas(16) Sixteen {
  uint64_t low, high;
};

template <class Unit>
__device__ void copy_units(const CopyChunk& chunk) {
  const auto* const from = static_cast<const Unit*>(chunk.from);
  auto* const to = static_cast<Unit*>(chunk.to);
  const auto count = chunk.bytes / static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

// One thread block per chunk, in the widest units that it allows.
__global__ void copy_each(const CopyChunk* chunks) {
  const CopyChunk chunk = chunks[blockIdx.x];
  const uint64_t all = reinterpret_cast<uint64_t>(chunk.from) |
                       reinterpret_cast<uint64_t>(chunk.to) | static_cast<uint64_t>(chunk.bytes);
  if (all % sizeof(Sixteen) == 0) {
    copy_units<Sixteen>(chunk);
  } else if (all % sizeof(uint32_t) == 0) {
    copy_units<uint32_t>(chunk);
  } else {
    copy_units<unsigned char>(chunk);
  }
}

}  // namespace

void copy_chunks(const CopyChunk* chunks, int64_t count, void* stream) {
  if (count == 0) return;
  launch("copy of chunks", copy_each, {.blocks = count}, stream, chunks);
}

}  // namespace lockstep::kernels::cuda
