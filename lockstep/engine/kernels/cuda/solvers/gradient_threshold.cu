#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"

namespace lockstep::kernels::cuda {
namespace {

// Each thread of a warp adds one block of elements from first to last, as gradient_threshold.h
// requires. The warp reads kLanes elements of each block at a time into shared memory, so that
// reads are coalesced. Rows of shared memory have one element of padding, so that a column spreads
// over the banks.
constexpr int kLanes = 32;
static_assert(kNormBlock % kLanes == 0);

__global__ void sum_squares(const float* x, int64_t count, double* sums) {
  auto* tile = shared_memory<float>();
  const int lane = static_cast<int>(threadIdx.x);
  constexpr auto size = static_cast<int64_t>(kNormBlock);
  const int64_t first_block = int64_t{blockIdx.x} * kLanes;
  double sum = 0;
  for (int64_t column = 0; column < size; column += kLanes) {
    for (int row = 0; row < kLanes; ++row) {
      const int64_t i = (first_block + row) * size + column + lane;
      tile[row * (kLanes + 1) + lane] = i < count ? x[i] : 0.0f;
    }
    __syncthreads();
    for (int i = 0; i < kLanes; ++i) {
      const auto value = static_cast<double>(tile[lane * (kLanes + 1) + i]);
      sum += value * value;
    }
    __syncthreads();
  }
  if ((first_block + lane) * size < count) sums[first_block + lane] = sum;
}

struct Limit {
  float* x;
  float most;
  __device__ void operator()(int64_t i) const {
    x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
  }
};

struct Divide {
  float* x;
  float divisor;
  __device__ void operator()(int64_t i) const { x[i] = x[i] / divisor; }
};

}  // namespace

void block_squares(const float* x, size_t count, double* sums, void* stream) {
  if (count == 0) return;
  const auto blocks = static_cast<int64_t>(norm_blocks(count));
  launch("squares by blocks", sum_squares,
         {.blocks = (blocks + kLanes - 1) / kLanes,
          .threads = kLanes,
          .shared_bytes = kLanes * (kLanes + 1) * sizeof(float)},
         stream, x, static_cast<int64_t>(count), sums);
}

void limit(float* x, size_t count, float most, void* stream) {
  launch_each("limit", static_cast<int64_t>(count), stream, Limit{x, most});
}

void divide(float* x, size_t count, float divisor, void* stream) {
  launch_each("divide", static_cast<int64_t>(count), stream, Divide{x, divisor});
}

}  // namespace lockstep::kernels::cuda
