// Helpers to write and launch this project's CUDA kernels. The kernels compile with nvcc, and as
// plain C++ with an emulation of blocks and threads that the compiler's command line includes
// (tests/engine/cuda/emulation.h). Blocks and grids have one dimension. Shared memory is dynamic.
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime.h>
#elif !defined(LOCKSTEP_CUDA_EMULATION)
#error "needs nvcc, or an emulation of the device named by -include"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::kernels::cuda {

// Before a loop over the elements of an array: unrolled, so that they lie in registers.
#ifdef __CUDACC__
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL
#endif

// Default number of threads in a block. Every number of threads is a power of two, because
// reduction trees require it. A change of kBlock changes results.
inline constexpr int kBlock = 256;

// Launch arguments of a kernel.
struct Grid {
  int64_t blocks = 1;
  int threads = kBlock;
  size_t shared_bytes = 0;
};

// Throws Error with `what` and the runtime's message.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status));
}

// What a grid can have. More would be cut off when they become 32 bits.
inline constexpr int64_t kMostBlocks = 0x7fffffff;

// Adds a launch of `kernel` to `stream`. Throws Error with `name` if the launch fails, Unsupported
// for more blocks than a GPU launches.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const Grid& grid, void* stream,
            Args... args) {
  if (grid.blocks > kMostBlocks) {
    throw Unsupported(std::string("[cuda] ") + name + ": " + std::to_string(grid.blocks) +
                      " blocks are more than a GPU launches at once");
  }
#ifdef __CUDACC__
  kernel<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads),
           grid.shared_bytes, static_cast<cudaStream_t>(stream)>>>(static_cast<Params>(args)...);
#else
  static_cast<void>(stream);
  emulation::launch(grid.blocks, grid.threads, grid.shared_bytes,
                    [&] { kernel(static_cast<Params>(args)...); });
#endif
  check(cudaGetLastError(), name);
}

// The block's shared memory.
template <class T>
__device__ T* shared_memory() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
#else
  return static_cast<T*>(emulation::shared_memory());
#endif
}

// Runs body(i) for all i below `count`.
template <class Body>
__global__ void each(int64_t count, Body body) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}

// Launches body(i) for all i below `count`. Body is a small struct with
// `__device__ void operator()(int64_t i) const`.
template <class Body>
void launch_each(const char* name, int64_t count, void* stream, const Body& body) {
  if (count == 0) return;
  constexpr int64_t most_blocks = int64_t{1} << 20;
  const int64_t blocks = std::min((count + kBlock - 1) / kBlock, most_blocks);
  launch(name, each<Body>, {.blocks = blocks}, stream, count, body);
}

// Adds a copy within the device's memory to `stream`.
inline void launch_copy(const char* name, void* to, const void* from, size_t bytes, void* stream) {
  check(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
      name);
}

// a / b and a % b for non-negative numbers. Uses 32 bits if possible, because 64-bit division is
// slow on a GPU.
struct Division {
  int64_t quotient, remainder;
};
__device__ inline Division divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    const auto small = static_cast<uint32_t>(a), by = static_cast<uint32_t>(b);
    const uint32_t quotient = small / by;
    return {quotient, small - quotient * by};
  }
  const int64_t quotient = a / b;
  return {quotient, a - quotient * b};
}

}  // namespace lockstep::kernels::cuda
