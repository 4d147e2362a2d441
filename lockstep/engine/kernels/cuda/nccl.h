// Groups of GPUs, one GPU per process, on top of NCCL. NCCL is loaded at first use, so that nothing
// else depends on it. nccl.cpp implements this if NCCL's header exists at build time, else
// no_nccl.cpp does.
#pragma once

#include <memory>

#include "lockstep/engine/device/device_group.h"

namespace lockstep::kernels::cuda {

// Groups for the GPU with this index; null if NCCL cannot be used.
std::shared_ptr<DeviceGroups> nccl_groups(int index);

}  // namespace lockstep::kernels::cuda
