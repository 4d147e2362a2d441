// The CUDA kernels. See kernels/table.h.
#pragma once

#include "lockstep/engine/kernels/table.h"

namespace lockstep::kernels::cuda {

const Table& table();

}  // namespace lockstep::kernels::cuda
