// Runs a GPU's blocks and threads on the CPU, to test this library's kernels without a GPU. It is
// included by -include on the compiler's command line, so that .cu files compile as plain C++.
// Blocks run one after the other. The threads of a block are fibers that switch at __syncthreads().
// The order of the threads can be reversed: a kernel that lacks a __syncthreads() then gives other
// bits.
#pragma once

#define LOCKSTEP_CUDA_EMULATION 1

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__

namespace emulation {

struct Index {
  unsigned x = 0;
};
// Values for the present thread.
inline thread_local Index thread_index, block_index, block_size, grid_size;

enum class Order { forwards, backwards };
// Sets the order in which a block's threads run between barriers.
void set_order(Order order);

// Runs `body` for every thread of every block and returns when all have ended. Shared memory
// initially holds NaNs.
void launch(int64_t blocks, int threads, size_t shared_bytes, const std::function<void()>& body);
void* shared_memory();
void barrier();

}  // namespace emulation

#define threadIdx (::emulation::thread_index)
#define blockIdx (::emulation::block_index)
#define blockDim (::emulation::block_size)
#define gridDim (::emulation::grid_size)

inline void __syncthreads() { ::emulation::barrier(); }

// The parts of the CUDA runtime that the kernels need.
using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorNotReady = 600 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
// As in CUDA, an answer other than success stays until it is read, also "not ready".
inline thread_local cudaError_t last_cuda_error = cudaSuccess;
inline cudaError_t cudaGetLastError() {
  const cudaError_t last = last_cuda_error;
  last_cuda_error = cudaSuccess;
  return last;
}
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
// Streams complete work immediately, except for data from other devices.
bool stream_is_busy(cudaStream_t stream);
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!stream_is_busy(stream)) return cudaSuccess;
  last_cuda_error = cudaErrorNotReady;
  return cudaErrorNotReady;
}
struct cudaDeviceProp {
  char name[16];
  int multiProcessorCount;
  struct {
    char bytes[16];
  } uuid;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  *properties = {"emulation", 1, {}};
  std::memcpy(properties->uuid.bytes, "0123456789abcdef", 16);
  properties->uuid.bytes[15] = static_cast<char>('0' + index);
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
