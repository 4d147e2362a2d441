#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/shapes/copy_pieces.h"

namespace lockstep::kernels::cuda {
namespace {

struct alignas(16) Sixteen {
  uint64_t low, high;
};

template <class Unit>
__device__ void copy_units(const CopyPiece& piece) {
  const auto* const from = static_cast<const Unit*>(piece.from);
  auto* const to = static_cast<Unit*>(piece.to);
  const auto count = piece.bytes / static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

// One thread block per piece, in the widest units that it allows.
__global__ void copy_each(const CopyPiece* pieces) {
  const CopyPiece piece = pieces[blockIdx.x];
  const uint64_t all = reinterpret_cast<uint64_t>(piece.from) |
                       reinterpret_cast<uint64_t>(piece.to) | static_cast<uint64_t>(piece.bytes);
  if (all % sizeof(Sixteen) == 0) {
    copy_units<Sixteen>(piece);
  } else if (all % sizeof(uint32_t) == 0) {
    copy_units<uint32_t>(piece);
  } else {
    copy_units<unsigned char>(piece);
  }
}

}  // namespace

void copy_pieces(const CopyPiece* pieces, int64_t count, void* stream) {
  if (count == 0) return;
  launch("copy of pieces", copy_each, {.blocks = count}, stream, pieces);
}

}  // namespace lockstep::kernels::cuda
