// What a back end offers: one function for each kind of problem.
#pragma once

#include <string>

#include "lockstep/base/dtype.h"
#include "lockstep/engine/kernels/activation.h"
#include "lockstep/engine/kernels/addition.h"
#include "lockstep/engine/kernels/augment_images.h"
#include "lockstep/engine/kernels/batch_normalization.h"
#include "lockstep/engine/kernels/clipped_relu.h"
#include "lockstep/engine/kernels/concatenation.h"
#include "lockstep/engine/kernels/convolution.h"
#include "lockstep/engine/kernels/cross_entropy.h"
#include "lockstep/engine/kernels/dropout.h"
#include "lockstep/engine/kernels/fully_connected.h"
#include "lockstep/engine/kernels/gradient_threshold.h"
#include "lockstep/engine/kernels/group_normalization.h"
#include "lockstep/engine/kernels/mean_squared_error.h"
#include "lockstep/engine/kernels/multiplication.h"
#include "lockstep/engine/kernels/normalize_images.h"
#include "lockstep/engine/kernels/pooling.h"
#include "lockstep/engine/kernels/relu.h"
#include "lockstep/engine/kernels/reshape.h"
#include "lockstep/engine/kernels/softmax.h"
#include "lockstep/engine/kernels/solver.h"
#include "lockstep/engine/kernels/sum.h"
#include "lockstep/engine/kernels/transposed_convolution.h"

namespace lockstep::kernels {

// A back end. `version` changes with any change of the functions' types, so that a back end loaded
// at run time can be refused. The functions are thread-safe; the choice of an algorithm depends on
// the problem and the numerics fingerprint alone.
struct Table {
  static constexpr int kVersion = 13;
  int version = kVersion;
  // Kernels take bf16 (f16) where their ops do, in hardware.
  bool bf16 = false, f16 = false;
  // batch_normalization takes problems with max_pool.
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

  // Copies input 0 from one layout to another of the same shape; f32 and
  // bf16, f32 and f16 become each other.
  Pass (*reorder)(const TensorSpec& from, const TensorSpec& to);
  // write 0 = read 0 + read 1, all of one spec, padding included. May be in place.
  Pass (*accumulate)(const TensorSpec& spec);
  // write 0 = zeros, padding included.
  Pass (*zero)(const TensorSpec& spec);

  // Updates of learnables; see solver.h. A count of 0 does nothing. On a GPU arrays are the
  // device's, and the work is added to `queue`; the CPU has none.
  void (*sgdm)(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate&,
               void* queue);
  void (*adam)(float* w, float* m, float* s, const float* gradient_sum, size_t count,
               const AdamUpdate&, void* queue);
  void (*rmsprop)(float* w, float* s, const float* gradient_sum, size_t count, const RmspropUpdate&,
                  void* queue);
  // The same of many learnables, with the bits of an update of each; null where a back end has
  // none.
  void (*sgdm_of_all)(const Updates<SgdmUpdate>&, void* queue) = nullptr;
  void (*adam_of_all)(const Updates<AdamUpdate>&, void* queue) = nullptr;
  void (*rmsprop_of_all)(const Updates<RmspropUpdate>&, void* queue) = nullptr;
  // sum[i] = a[i] + b[i]: what the fixed tree over shards is made of. May be in place.
  void (*add)(const float* a, const float* b, float* sum, size_t count, void* queue);

  // Gradient clipping; see gradient_threshold.h. Queues and counts of 0 as above; `sums` are the
  // device's too, norm_blocks(count) of them.
  void (*block_squares)(const float* x, size_t count, double* sums, void* queue);
  void (*limit)(float* x, size_t count, float most, void* queue);

  // Changes images by a map each; see augment_images.h. Null where a back end does not.
  void (*augment_images)(const AugmentImages&, void* queue) = nullptr;
};

// Throws Unsupported where `dtype` is bf16 or f16 and the back end does not compute with it.
void check_precision(const Table& table, DType dtype);

// The back end of a device; a GPU's is loaded when it is first asked for (devices.h). Throws
// Unsupported, with the reason, where there is none.
const Table& table_for(Device device);

}  // namespace lockstep::kernels
