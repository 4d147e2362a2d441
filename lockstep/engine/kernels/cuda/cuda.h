// The GPU's kernels: cuDNN, cuBLASLt and CUDA kernels of this project. See backends/kernel_list.h
// for the contract of each function. Passes use channels last (layout.h) for tensors with spatial
// axes. They are bound to addresses in the device's memory and only add launches to
// PassMemory::stream. They do not wait, allocate or read the host's RandomContext, so runs can be
// captured in a CUDA graph.
//
// A kernel is made for the calling thread's current device, which must be the device that it will
// run on: cuDNN and cuBLASLt choose algorithms for that device. All functions are thread-safe.
#pragma once

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/interface/choice.h"

namespace lockstep::kernels::cuda {

LOCKSTEP_DECLARE_KERNELS

// Sets the function that gives the choice of algorithms for kernels made from now on. Null restores
// the defaults.
void follow(Choice (*choice)());
// The current choice.
Choice choice();

const Table& table();

}  // namespace lockstep::kernels::cuda
