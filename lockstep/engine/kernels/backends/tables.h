// What ops and plans call of a back end, without the list of its kernels (kernel_list.h), so that
// sources that call it are not compiled again for each new kernel.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// The kernels of a back end (table.h).
struct Table;
// Its functions that are not kernels of ops (functions.h).
struct Functions;

// The kernel for a problem of one of the OP lines of kernel_list.h, which are the types there are.
template <class Problem>
Kernel compile(const Table& table, const Problem& problem);

// The functions of the same names.
Pass reorder(const Table& table, const TensorSpec& from, const TensorSpec& to);
Pass accumulate(const Table& table, const TensorSpec& spec);
Pass zero(const Table& table, const TensorSpec& spec);

// Whether batch_normalization supports problems with a bias (with max_pool).
bool normalizes_with_bias(const Table& table);
bool normalizes_with_max_pooling(const Table& table);

// Throws Unsupported if `dtype` is bf16 or f16 and the back end does not support it.
void check_precision(const Table& table, DType dtype);
// Throws Unsupported if the back end does not follow Choice::tf32.
void check_tf32(const Table& table);

// The kernels of a device. A GPU's back end is loaded at its first use (devices.h). Throws
// Unsupported, with the reason, if there is none.
const Table& table_for(Device device);
const Functions& functions_for(Device device);

}  // namespace lockstep::kernels
