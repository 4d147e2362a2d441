// The CPU's kernels: oneDNN, and code of this project where oneDNN has no suitable kernel. See
// backends/table.h.
#pragma once

#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels::cpu {

Kernel convolution(const ConvolutionProblem&);
Kernel transposed_convolution(const TransposedConvolutionProblem&);
Kernel fully_connected(const FullyConnectedProblem&);
Kernel batch_normalization(const BatchNormalizationProblem&);
Kernel group_normalization(const GroupNormalizationProblem&);
Kernel pooling(const PoolingProblem&);
Kernel relu(const ReluProblem&);
Kernel clipped_relu(const ClippedReluProblem&);
Kernel activation(const ActivationProblem&);
Kernel addition(const AdditionProblem&);
Kernel multiplication(const MultiplicationProblem&);
Kernel dropout(const DropoutProblem&);
Kernel reshape(const ReshapeProblem&);
Kernel concatenation(const ConcatenationProblem&);
Kernel sum(const SumProblem&);
Kernel softmax(const SoftmaxProblem&);
Kernel cross_entropy(const CrossEntropyProblem&);
Kernel mean_squared_error(const MeanSquaredErrorProblem&);
Kernel normalize_images(const NormalizeImagesProblem&);
Pass reorder(const TensorSpec& from, const TensorSpec& to);
Pass accumulate(const TensorSpec& spec);
Pass zero(const TensorSpec& spec);

const Table& table();

}  // namespace lockstep::kernels::cpu
