// The CPU's kernels: oneDNN, and code of this project where oneDNN has no suitable kernel. See
// backends/kernel_list.h for the contract of each function.
#pragma once

#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels::cpu {

LOCKSTEP_DECLARE_KERNELS

const Table& table();

}  // namespace lockstep::kernels::cpu
