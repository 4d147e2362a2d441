// The GPU's kernels: cuDNN, cuBLASLt and own CUDA. See kernels/table.h for what each function
// gives. Passes want channels last (layout.h) for tensors with space, are bound to addresses in the
// device's memory and only add launches to PassMemory::queue: nothing waits, nothing is allocated,
// nothing depends on the host's StepInfo, so runs can be captured in a CUDA graph.
//
// Making a kernel asks cuDNN and cuBLASLt about the calling thread's current device; it must be the
// one that the kernel will run on. All functions are thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/choice.h"
#include "lockstep/engine/kernels/table.h"

namespace lockstep::kernels::cuda {

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

// Updates of learnables as in solver.h, all arrays in the device's memory, added to `queue`.
void sgdm(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate& u,
          void* queue);
void adam(float* w, float* m, float* s, const float* gradient_sum, size_t count,
          const AdamUpdate& u, void* queue);
void rmsprop(float* w, float* s, const float* gradient_sum, size_t count, const RmspropUpdate& u,
             void* queue);
// sum[i] = a[i] + b[i]. May be in place.
void add(const float* a, const float* b, float* sum, size_t count, void* queue);
// As in gradient_threshold.h.
void block_squares(const float* x, size_t count, double* sums, void* queue);
void limit(float* x, size_t count, float most, void* queue);

// The same updates for all learnables in one launch.
void sgdm_of_all(const Updates<SgdmUpdate>& all, void* queue);
void adam_of_all(const Updates<AdamUpdate>& all, void* queue);
void rmsprop_of_all(const Updates<RmspropUpdate>& all, void* queue);

// As in augment_images.h, all in the device's memory.
void augment_images(const AugmentImages& all, void* queue);

// Who says which algorithms kernels may take that are made from now on; nobody: the defaults.
void follow(Choice (*choice)());
// What that says now.
Choice choice();

const Table& table();

}  // namespace lockstep::kernels::cuda
