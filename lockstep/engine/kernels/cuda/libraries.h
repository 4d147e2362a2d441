// cuDNN and cuBLASLt: handles, and translation of errors.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <string>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels::cuda {

// Throw if a call failed: Unsupported if the library does not support the request, else Error. The
// message has `what` and the library's own message.
void check(cudnnStatus_t status, const char* what);
void check(cublasStatus_t status, const char* what);
// cuDNN's message about its last failure in this thread, in parentheses after a space; "" if there
// is none.
std::string cudnn_details();

// cuDNN's handle of the calling thread for its current device and this stream. The first call makes
// the handle, which takes time and memory and must not happen while a graph is being captured.
cudnnHandle_t cudnn_handle(void* stream);
// Makes the handle when the pass is bound, before its first run.
Pass with_cudnn(Pass pass);

// cuBLASLt's handle for the current device, shared by all threads.
cublasLtHandle_t cublas_handle();

// Limit on a library's scratch memory. Fixed, so that the choice of an algorithm does not depend on
// the free memory.
inline constexpr size_t kMostLibraryScratch = size_t{512} << 20;
// Rounds up to the alignment of addresses within scratch.
constexpr size_t aligned_scratch(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace lockstep::kernels::cuda
