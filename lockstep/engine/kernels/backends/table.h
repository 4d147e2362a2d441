// Interface of a back end's kernels: one function for each kind of problem.
#pragma once

#include <string>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/clipped_relu.h"
#include "lockstep/engine/kernels/elementwise/dropout.h"
#include "lockstep/engine/kernels/elementwise/multiplication.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/images/normalize_images.h"
#include "lockstep/engine/kernels/losses/cross_entropy.h"
#include "lockstep/engine/kernels/losses/mean_squared_error.h"
#include "lockstep/engine/kernels/losses/softmax.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"
#include "lockstep/engine/kernels/normalization/group_normalization.h"
#include "lockstep/engine/kernels/reductions/sum.h"
#include "lockstep/engine/kernels/shapes/concatenation.h"
#include "lockstep/engine/kernels/shapes/reshape.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/engine/kernels/windows/pooling.h"
#include "lockstep/engine/kernels/windows/transposed_convolution.h"

namespace lockstep::kernels {

// The kernels of a back end. `version` changes whenever the type of a function changes, so that a
// back end loaded at run time can be rejected. The functions are thread-safe. The choice of an
// algorithm depends only on the problem and the numerics fingerprint.
struct Table {
  static constexpr int kVersion = 14;
  int version = kVersion;
  // Kernels compute with bf16 (f16) in hardware, where their ops support the type.
  bool bf16 = false, f16 = false;
  // batch_normalization supports problems with max_pool.
  bool normalization_with_max_pooling = false;

  Kernel (*convolution)(const ConvolutionProblem&);
  Kernel (*transposed_convolution)(const TransposedConvolutionProblem&);
  Kernel (*fully_connected)(const FullyConnectedProblem&);
  Kernel (*batch_normalization)(const BatchNormalizationProblem&);
  Kernel (*group_normalization)(const GroupNormalizationProblem&);
  Kernel (*pooling)(const PoolingProblem&);
  Kernel (*relu)(const ReluProblem&);
  Kernel (*clipped_relu)(const ClippedReluProblem&);
  Kernel (*activation)(const ActivationProblem&);
  Kernel (*addition)(const AdditionProblem&);
  Kernel (*multiplication)(const MultiplicationProblem&);
  Kernel (*dropout)(const DropoutProblem&);
  Kernel (*reshape)(const ReshapeProblem&);
  Kernel (*concatenation)(const ConcatenationProblem&);
  Kernel (*sum)(const SumProblem&);
  Kernel (*softmax)(const SoftmaxProblem&);
  Kernel (*cross_entropy)(const CrossEntropyProblem&);
  Kernel (*mean_squared_error)(const MeanSquaredErrorProblem&);
  Kernel (*normalize_images)(const NormalizeImagesProblem&);

  // Copies input 0 to another layout of the same shape. Converts between f32 and bf16 or f16.
  Pass (*reorder)(const TensorSpec& from, const TensorSpec& to);
  // write 0 = read 0 + read 1, all with the same spec, including padding. May be in place.
  Pass (*accumulate)(const TensorSpec& spec);
  // write 0 = zeros, including padding.
  Pass (*zero)(const TensorSpec& spec);

  // Updates of parameters; see solver.h. A count of 0 does nothing. On a GPU the arrays are in the
  // device's memory and the work is added to `stream`. The CPU ignores `stream`.
  void (*sgdm)(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate&,
               void* stream);
  void (*adam)(float* w, float* m, float* s, const float* gradient_sum, size_t count,
               const AdamUpdate&, void* stream);
  void (*rmsprop)(float* w, float* s, const float* gradient_sum, size_t count, const RmspropUpdate&,
                  void* stream);
  // Update many parameters at once, with the same bits as single updates. Null if not supported.
  void (*sgdm_of_all)(const Updates<SgdmUpdate>&, void* stream) = nullptr;
  void (*adam_of_all)(const Updates<AdamUpdate>&, void* stream) = nullptr;
  void (*rmsprop_of_all)(const Updates<RmspropUpdate>&, void* stream) = nullptr;
  // sum[i] = a[i] + b[i]: one addition of the fixed tree over shards. May be in place.
  void (*add)(const float* a, const float* b, float* sum, size_t count, void* stream);

  // Gradient clipping; see gradient_threshold.h. Streams and counts of 0 as above. `sums` has
  // norm_blocks(count) elements, on a GPU in the device's memory.
  void (*block_squares)(const float* x, size_t count, double* sums, void* stream);
  void (*limit)(float* x, size_t count, float most, void* stream);
  // x[i] = x[i] / divisor.
  void (*divide)(float* x, size_t count, float divisor, void* stream);

  // Transforms each image by its own map; see augment_images.h. Null if not supported.
  void (*augment_images)(const AugmentImages&, void* stream) = nullptr;
};

// Throws Unsupported if `dtype` is bf16 or f16 and the back end does not support it.
void check_precision(const Table& table, DType dtype);

// The kernels of a device. A GPU's back end is loaded at its first use (devices.h). Throws
// Unsupported, with the reason, if there is none.
const Table& table_for(Device device);

}  // namespace lockstep::kernels
