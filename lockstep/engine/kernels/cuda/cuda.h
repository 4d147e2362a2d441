// The GPU's kernels: cuDNN, cuBLASLt and CUDA kernels of this project. See backends/table.h for the
// contract of each function. Passes use channels last (layout.h) for tensors with spatial axes.
// They are bound to addresses in the device's memory and only add launches to PassMemory::stream.
// They do not wait, allocate or read the host's StepInfo, so runs can be captured in a CUDA graph.
//
// A kernel is made for the calling thread's current device, which must be the device that it will
// run on: cuDNN and cuBLASLt choose algorithms for that device. All functions are thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/interface/choice.h"

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

// Updates of parameters as in solver.h. All arrays are in the device's memory; the work is added to
// `stream`.
void sgdm(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate& u,
          void* stream);
void adam(float* w, float* m, float* s, const float* gradient_sum, size_t count,
          const AdamUpdate& u, void* stream);
void rmsprop(float* w, float* s, const float* gradient_sum, size_t count, const RmspropUpdate& u,
             void* stream);
// sum[i] = a[i] + b[i]. May be in place.
void add(const float* a, const float* b, float* sum, size_t count, void* stream);
// Gradient clipping as in gradient_threshold.h.
void block_squares(const float* x, size_t count, double* sums, void* stream);
void limit(float* x, size_t count, float most, void* stream);
void divide(float* x, size_t count, float divisor, void* stream);

// The same updates for all parameters, in one launch.
void sgdm_of_all(const Updates<SgdmUpdate>& all, void* stream);
void adam_of_all(const Updates<AdamUpdate>& all, void* stream);
void rmsprop_of_all(const Updates<RmspropUpdate>& all, void* stream);

// As in augment_images.h, with all arrays in the device's memory.
void augment_images(const AugmentImages& all, void* stream);

// Sets the function that gives the choice of algorithms for kernels made from now on. Null restores
// the defaults.
void follow(Choice (*choice)());
// The current choice.
Choice choice();

const Table& table();

}  // namespace lockstep::kernels::cuda
