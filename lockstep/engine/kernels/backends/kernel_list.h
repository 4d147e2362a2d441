// The list of all kernels, in the order of struct Table. From it follow the members of Table
// (table.h), the declarations and the tables of both back ends (cpu/, cuda/), the names, guards and
// support of kernels (kernel_info.h, support.h), and the stand-ins of the tests. A new kernel is
// one line here, and the next LOCKSTEP_TABLE_VERSION below.
//
// LOCKSTEP_KERNELS(OP, FUNCTION) applies one of two macros to each line:
//
//   OP(name, Problem, types, need, place)                     Kernel name(const Problem&)
//   FUNCTION(name, result, parameters, types, need, place)    any other type of function
//
//   name    the entry of Table, and the function in namespaces kernels::cpu and kernels::cuda
//   types   narrow: computes with bf16 and f16 too, where the back end does. wide: never
//   need    required: callers depend on it. optional: the entry may be null, and callers then do
//           without it
//   place   both: each back end defines the function. cpu_only: GPUs refuse the call.
//           gpu_only: null on the CPU, so it must be optional
//
// Problems are described in kernels/<family>/<name>.h, the parameters of functions in
// kernels/solvers/ and kernels/images/. For all functions: a count of 0 does nothing. On a GPU the
// arrays are in the device's memory and the work is added to `stream`; the CPU ignores `stream`.
#pragma once

// Changes whenever the list or the type of a function in it changes, so that a back end that was
// built with another list is rejected.
#define LOCKSTEP_TABLE_VERSION 25

// clang-format off
#define LOCKSTEP_KERNELS(OP, FUNCTION)                                                             \
  OP(convolution, ConvolutionProblem, narrow, required, both)                                      \
  OP(transposed_convolution, TransposedConvolutionProblem, narrow, required, both)                 \
  OP(fully_connected, FullyConnectedProblem, narrow, required, both)                               \
  OP(matrix_product, MatrixProductProblem, wide, required, both)                                   \
  OP(batch_normalization, BatchNormalizationProblem, narrow, required, both)                       \
  OP(group_normalization, GroupNormalizationProblem, wide, required, both)                         \
  OP(pooling, PoolingProblem, narrow, required, both)                                              \
  OP(relu, ReluProblem, narrow, required, both)                                                    \
  OP(clipped_relu, ClippedReluProblem, wide, required, both)                                       \
  OP(activation, ActivationProblem, wide, required, both)                                          \
  OP(addition, AdditionProblem, narrow, required, both)                                            \
  OP(multiplication, MultiplicationProblem, wide, required, both)                                  \
  OP(dropout, DropoutProblem, wide, required, both)                                                \
  OP(expression, ExpressionProblem, wide, required, both)                                          \
  OP(random_uniform, RandomUniformProblem, wide, required, both)                                   \
  OP(cast, CastProblem, wide, required, both)                                                      \
  OP(reshape, ReshapeProblem, narrow, required, both)                                              \
  OP(concatenation, ConcatenationProblem, narrow, required, both)                                  \
  OP(strided_copy, StridedCopyProblem, wide, required, both)                                       \
  OP(arange, ArangeProblem, wide, required, both)                                                  \
  OP(take, TakeProblem, wide, required, both)                                                      \
  OP(scatter_add, ScatterAddProblem, wide, required, both)                                         \
  OP(reduce, ReduceProblem, wide, required, both)                                                  \
  OP(arg_reduce, ArgReduceProblem, wide, required, both)                                           \
  OP(cumulative_sum, CumulativeSumProblem, wide, required, both)                                   \
  OP(products_of_others, ProductsOfOthersProblem, wide, required, both)                            \
  OP(sum, SumProblem, wide, required, both)                                                        \
  OP(pooled_at_maximum, PooledAtMaximumProblem, wide, required, both)                              \
  OP(one_hot, OneHotProblem, wide, required, both)                                                 \
  OP(softmax, SoftmaxProblem, wide, required, both)                                                \
  OP(cross_entropy, CrossEntropyProblem, wide, required, both)                                     \
  OP(mean_squared_error, MeanSquaredErrorProblem, wide, required, both)                            \
  OP(normalize_images, NormalizeImagesProblem, wide, required, both)                               \
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
  /* Copies many pieces of the back end's memory at once; see shapes/copy_pieces.h. */             \
  FUNCTION(copy_pieces, void, (const CopyPiece* pieces, int64_t count, void* stream),              \
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

// For uses of the list that concern only one of the two kinds of lines.
#define LOCKSTEP_NO_KERNEL(...)
