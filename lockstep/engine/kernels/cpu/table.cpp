#include "lockstep/engine/kernels/backends/table.h"

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

// Wrappers that translate the exceptions of oneDNN.
Kernel translated_convolution(const ConvolutionProblem& p) {
  return translated("convolution", [&] { return convolution(p); });
}
Kernel translated_transposed_convolution(const TransposedConvolutionProblem& p) {
  return translated("transposed convolution", [&] { return transposed_convolution(p); });
}
Kernel translated_fully_connected(const FullyConnectedProblem& p) {
  return translated("fully connected op", [&] { return fully_connected(p); });
}
Kernel translated_batch_normalization(const BatchNormalizationProblem& p) {
  return translated("batch normalization", [&] { return batch_normalization(p); });
}
Kernel translated_pooling(const PoolingProblem& p) {
  return translated("pooling", [&] { return pooling(p); });
}
Pass translated_reorder(const TensorSpec& from, const TensorSpec& to) {
  return translated("change of layout", [&] { return reorder(from, to); });
}

// Wrappers without a stream: the CPU has none.
void sgdm_now(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate& u,
              void*) {
  sgdm(w, v, gradient_sum, count, u);
}
void adam_now(float* w, float* m, float* s, const float* gradient_sum, size_t count,
              const AdamUpdate& u, void*) {
  adam(w, m, s, gradient_sum, count, u);
}
void rmsprop_now(float* w, float* s, const float* gradient_sum, size_t count,
                 const RmspropUpdate& u, void*) {
  rmsprop(w, s, gradient_sum, count, u);
}
void add_now(const float* a, const float* b, float* sum, size_t count, void*) {
  add(a, b, sum, count);
}
void block_squares_now(const float* x, size_t count, double* sums, void*) {
  block_squares(x, count, sums);
}
void limit_now(float* x, size_t count, float most, void*) { limit(x, count, most); }
void divide_now(float* x, size_t count, float divisor, void*) { divide(x, count, divisor); }
void augment_images_now(const AugmentImages& all, void*) { augment_images(all); }

}  // namespace

const Table& table() {
  static const Table instance{.bf16 = computes_bf16(),
                              .normalization_with_max_pooling = true,
                              .convolution = translated_convolution,
                              .transposed_convolution = translated_transposed_convolution,
                              .fully_connected = translated_fully_connected,
                              .batch_normalization = translated_batch_normalization,
                              .group_normalization = group_normalization,
                              .pooling = translated_pooling,
                              .relu = relu,
                              .clipped_relu = clipped_relu,
                              .activation = activation,
                              .addition = addition,
                              .multiplication = multiplication,
                              .dropout = dropout,
                              .reshape = reshape,
                              .concatenation = concatenation,
                              .sum = sum,
                              .softmax = softmax,
                              .cross_entropy = cross_entropy,
                              .mean_squared_error = mean_squared_error,
                              .normalize_images = normalize_images,
                              .reorder = translated_reorder,
                              .accumulate = accumulate,
                              .zero = zero,
                              .sgdm = sgdm_now,
                              .adam = adam_now,
                              .rmsprop = rmsprop_now,
                              .add = add_now,
                              .block_squares = block_squares_now,
                              .limit = limit_now,
                              .divide = divide_now,
                              .augment_images = augment_images_now};
  return instance;
}

}  // namespace lockstep::kernels::cpu
