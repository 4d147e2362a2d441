// A back end's functions that are not kernels of ops: what plans and trainers call themselves.
//
// FUNCTION(name, result, parameters, types, need, backends) as in kernel_list.h. The parameters are
// described in kernels/solvers/, kernels/shapes/ and kernels/images/. For all functions: a count of
// 0 does nothing. On a GPU the arrays are in the device's memory and the work is added to `stream`;
// the CPU ignores `stream`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/interface/kernel.h"

// clang-format off
#define LOCKSTEP_FUNCTIONS(FUNCTION)                                                               \
  /* Copies input 0 to another layout of the same shape. Converts between f32 and bf16 or f16. */  \
  FUNCTION(reorder, Pass, (const TensorSpec& from, const TensorSpec& to), narrow, required, both)  \
  /* write 0 = read 0 + read 1, all with the same spec, including padding. May be in place. */     \
  FUNCTION(accumulate, Pass, (const TensorSpec& spec), narrow, required, both)                     \
  /* write 0 = zeros, including padding. */                                                        \
  FUNCTION(zero, Pass, (const TensorSpec& spec), wide, required, both)                             \
  /* Updates of one parameter; see solvers/solver.h. */                                            \
  FUNCTION(sgdm, void, (float* w, float* v, const float* gradient_sum, size_t count,               \
                        const SgdmUpdate&, void* stream), wide, required, both)                    \
  FUNCTION(adam, void, (float* w, float* m, float* s, const float* gradient_sum, size_t count,     \
                        const AdamUpdate&, void* stream), wide, required, both)                    \
  FUNCTION(rmsprop, void, (float* w, float* s, const float* gradient_sum, size_t count,            \
                           const RmspropUpdate&, void* stream), wide, required, both)              \
  /* Updates of many parameters at once, with the same bits as single updates. */                  \
  FUNCTION(sgdm_of_all, void, (const Updates<SgdmUpdate>&, void* stream),                          \
           wide, optional, gpu_only)                                                               \
  FUNCTION(adam_of_all, void, (const Updates<AdamUpdate>&, void* stream),                          \
           wide, optional, gpu_only)                                                               \
  FUNCTION(rmsprop_of_all, void, (const Updates<RmspropUpdate>&, void* stream),                    \
           wide, optional, gpu_only)                                                               \
  /* sum[i] = a[i] + b[i]: one addition of the fixed tree over shards. May be in place. */         \
  FUNCTION(add, void, (const float* a, const float* b, float* sum, size_t count, void* stream),    \
           wide, required, both)                                                                   \
  /* The sum of arrays of `count` elements by the fixed tree: leaf_count addresses in the back   */ \
  /* end's memory. `sum` may be the first leaf.                                                  */ \
  FUNCTION(sum_leaves, void, (const float* const* leaves, int64_t leaf_count, float* sum,          \
                              size_t count, void* stream), wide, required, both)                   \
  /* Digests of all parameters with their solver state; see solvers/parameter_digests.h. */        \
  FUNCTION(parameter_digests, void, (const ParameterDigests&, void* stream),                       \
           wide, required, both)                                                                   \
  /* Copies many chunks of the back end's memory at once; see shapes/copy_chunks.h. */             \
  FUNCTION(copy_chunks, void, (const CopyChunk* chunks, int64_t count, void* stream),              \
           wide, required, both)                                                                   \
  /* Gradient clipping; see solvers/gradient_threshold.h. */                                       \
  FUNCTION(block_squares, void, (const float* x, size_t count, double* sums, void* stream),        \
           wide, required, both)                                                                   \
  FUNCTION(limit, void, (float* x, size_t count, float most, void* stream), wide, required, both)  \
  FUNCTION(divide, void, (float* x, size_t count, float divisor, void* stream),                    \
           wide, required, both)                                                                   \
  /* Transforms each image by its own map; see images/augment_images.h. */                         \
  FUNCTION(augment_images, void, (const AugmentImages&, void* stream), wide, optional, both)
// clang-format on

namespace lockstep::kernels {

struct SgdmUpdate;
struct AdamUpdate;
struct RmspropUpdate;
template <class Update>
struct Updates;
struct AugmentImages;
struct ParameterDigests;
struct CopyChunk;

// The functions are thread-safe.
struct Functions {
#define LOCKSTEP_FUNCTION_MEMBER(name, result, parameters, ...) result(*name) parameters = nullptr;
  LOCKSTEP_FUNCTIONS(LOCKSTEP_FUNCTION_MEMBER)
#undef LOCKSTEP_FUNCTION_MEMBER
};
}  // namespace lockstep::kernels
