// Marks functions that are compiled for both CPU and GPU.
#pragma once

#if defined(__CUDACC__) || defined(LOCKSTEP_CUDA_EMULATION)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif
