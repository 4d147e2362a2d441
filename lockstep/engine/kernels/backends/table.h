// Interface of a back end's kernels: one function for each line of kernel_list.h and functions.h.
#pragma once

#include <cstddef>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/kernels/backends/kernel_list.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// The parameters of the functions: struct ConvolutionProblem and so on. Their headers are in the
// families' folders. Callers of a kernel include the header of its problem.
#define LOCKSTEP_DECLARE_PROBLEM(name, Problem, ...) struct Problem;
LOCKSTEP_OP_KERNELS(LOCKSTEP_DECLARE_PROBLEM)
#undef LOCKSTEP_DECLARE_PROBLEM

// The kernels of a back end. The functions are thread-safe. The choice of an algorithm depends only
// on the problem and the numerics fingerprint.
struct Table : Functions {
  static constexpr int kVersion = LOCKSTEP_TABLE_VERSION;
  int version = kVersion;
  // Kernels compute with bf16 (f16) in hardware, where their ops support the type.
  bool bf16 = false, f16 = false;
  // Kernels follow Choice::tf32.
  bool tf32 = false;
  // batch_normalization supports problems with max_pool.
  bool normalization_with_max_pooling = false;
  // batch_normalization supports problems with a bias.
  bool normalization_with_bias = false;

  // Kernel (*convolution)(const ConvolutionProblem&) and so on; see kernel_list.h.
#define LOCKSTEP_OP_MEMBER(name, Problem, ...) Kernel (*name)(const Problem&) = nullptr;
  LOCKSTEP_OP_KERNELS(LOCKSTEP_OP_MEMBER)
#undef LOCKSTEP_OP_MEMBER
};

// Declares the functions of a back end in the current namespace.
#define LOCKSTEP_DECLARE_OP(name, Problem, ...) Kernel name(const Problem&);
#define LOCKSTEP_DECLARE_FUNCTION(name, result, parameters, ...) result name parameters;
#define LOCKSTEP_DECLARE_KERNELS LOCKSTEP_KERNELS(LOCKSTEP_DECLARE_OP, LOCKSTEP_DECLARE_FUNCTION)

}  // namespace lockstep::kernels
