#include "lockstep/engine/kernels/table.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels {

namespace cpu {
namespace {

// Those that rest on oneDNN, whose errors stay behind this border.
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

}  // namespace

const Table& table() {
  static const Table instance{.convolution = translated_convolution,
                              .transposed_convolution = translated_transposed_convolution,
                              .fully_connected = translated_fully_connected,
                              .batch_normalization = translated_batch_normalization,
                              .pooling = translated_pooling,
                              .relu = relu,
                              .clipped_relu = clipped_relu,
                              .addition = addition,
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
                              .sgdm = sgdm,
                              .adam = adam,
                              .add = add};
  return instance;
}
}  // namespace cpu

const Table& table_for(Device device) {
  if (device.kind == Device::Kind::cpu) return cpu::table();
  throw Unsupported("[kernels] this build has no kernels for that device");
}

}  // namespace lockstep::kernels
