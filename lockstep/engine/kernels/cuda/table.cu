#include "lockstep/engine/kernels/cuda/cuda.h"

namespace lockstep::kernels::cuda {

const Table& table() {
  static const Table instance{.bf16 = true,
                              .f16 = true,
                              .convolution = convolution,
                              .transposed_convolution = transposed_convolution,
                              .fully_connected = fully_connected,
                              .batch_normalization = batch_normalization,
                              .group_normalization = group_normalization,
                              .pooling = pooling,
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
                              .reorder = reorder,
                              .accumulate = accumulate,
                              .zero = zero,
                              .sgdm = sgdm,
                              .adam = adam,
                              .rmsprop = rmsprop,
                              .sgdm_of_all = sgdm_of_all,
                              .adam_of_all = adam_of_all,
                              .rmsprop_of_all = rmsprop_of_all,
                              .add = add,
                              .block_squares = block_squares,
                              .limit = limit,
                              .divide = divide,
                              .augment_images = augment_images};
  return instance;
}

}  // namespace lockstep::kernels::cuda
