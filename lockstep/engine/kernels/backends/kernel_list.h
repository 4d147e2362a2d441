// The list of all kernels, in the order of struct Table. From it follow the members of Table
// (table.h), the declarations and the tables of both back ends (cpu/, cuda/), the names, guards and
// support of kernels (kernel_info.h, support.h), and the stand-ins of the tests. A new kernel of an
// op is one line here, and the next LOCKSTEP_TABLE_VERSION below. Nothing outside kernels/ includes
// the list, so little is compiled again.
//
// LOCKSTEP_KERNELS(OP, FUNCTION) applies one of two macros to each line of this list and of that in
// functions.h:
//
//   OP(name, Problem, types, need, backends)                     Kernel name(const Problem&)
//   FUNCTION(name, result, parameters, types, need, backends)    any other type of function
//
//   name      the entry of Table, and the function in namespaces kernels::cpu and kernels::cuda
//   types     narrow: computes with bf16 and f16 too, where the back end does. wide: never
//   need      required: callers depend on it. optional: the entry may be null, and callers then do
//             without it
//   backends  both: each back end defines the function. cpu_only: GPUs refuse the call.
//             gpu_only: null on the CPU, so it must be optional
//
// Problems are described in kernels/<family>/<name>.h.
#pragma once

#include "lockstep/engine/kernels/backends/functions.h"

// Changes whenever a list or the type of a function in it changes, so that a back end that was
// built with another list is rejected.
#define LOCKSTEP_TABLE_VERSION 30

// clang-format off
#define LOCKSTEP_OP_KERNELS(OP)                                                                    \
  OP(convolution, ConvolutionProblem, narrow, required, both)                                      \
  OP(transposed_convolution, TransposedConvolutionProblem, narrow, required, both)                 \
  OP(fully_connected, FullyConnectedProblem, narrow, required, both)                               \
  OP(matrix_product, MatrixProductProblem, wide, required, both)                                   \
  OP(batch_normalization, BatchNormalizationProblem, narrow, required, both)                       \
  OP(group_normalization, GroupNormalizationProblem, wide, required, both)                         \
  OP(attention, AttentionProblem, wide, required, both)                                            \
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
  OP(ctc, CtcProblem, wide, required, both)                                                        \
  OP(mean_squared_error, MeanSquaredErrorProblem, wide, required, both)                            \
  OP(recurrent, RecurrentProblem, wide, required, both)                                            \
  OP(normalize_images, NormalizeImagesProblem, wide, required, both)
// clang-format on

#define LOCKSTEP_KERNELS(OP, FUNCTION) LOCKSTEP_OP_KERNELS(OP) LOCKSTEP_FUNCTIONS(FUNCTION)

// For uses of the lists that concern only one of the two kinds of lines.
#define LOCKSTEP_NO_KERNEL(...)
