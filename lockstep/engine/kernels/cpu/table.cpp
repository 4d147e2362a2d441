#include "lockstep/engine/kernels/table.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels {

namespace cpu {
const Table& table() {
  static const Table instance{.convolution = convolution,
                              .fully_connected = fully_connected,
                              .batch_normalization = batch_normalization,
                              .pooling = pooling,
                              .relu = relu,
                              .addition = addition,
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
