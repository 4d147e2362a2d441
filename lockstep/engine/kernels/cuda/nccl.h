// Groups of GPUs, one for each process: NCCL, which is loaded when it is first asked for, so that
// nothing else needs it. In nccl.cpp where its header is there at build time, else no_nccl.cpp.
#pragma once

#include <memory>

#include "lockstep/engine/tensor/device_group.h"

namespace lockstep::kernels::cuda {

// Of the GPU with this index; null where there is no NCCL.
std::shared_ptr<DeviceGroups> nccl_groups(int index);

}  // namespace lockstep::kernels::cuda
