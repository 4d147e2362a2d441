// cuDNN and cuBLASLt: handles, and errors in Lockstep's terms.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <string>

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels::cuda {

// Throw what a failed call means: Unsupported where the library does not do what was asked, else
// Error; both name `what` and give the library's own message.
void check(cudnnStatus_t status, const char* what);
void check(cublasStatus_t status, const char* what);
// What cuDNN says of its last failure in this thread, in brackets with a space before; or nothing.
std::string cudnn_details();

// cuDNN's handle of the calling thread for its current device and this queue. The first call makes
// one, which takes time and memory: not while a graph is being captured.
cudnnHandle_t cudnn_handle(void* queue);
// The same before the pass is first run: binding makes the handle.
Pass with_cudnn(Pass pass);

// cuBLASLt's handle of the current device, shared by all threads.
cublasLtHandle_t cublas_handle();

// Scratch that a library may use at most. Fixed, so that the choice of an algorithm does not depend
// on the memory that happens to be free.
inline constexpr size_t kMostLibraryScratch = size_t{512} << 20;
// Addresses within scratch are multiples of this.
constexpr size_t aligned_scratch(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace lockstep::kernels::cuda
