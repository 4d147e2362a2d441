// Sums over observations and space, for each channel, in double: gradients of biases, means. oneDNN
// adds such sums up in f32, one element after the other, which loses a digit for every hundred
// elements or so.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/bfloat16.h"
#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels::cpu {

// Sums of more elements than this are taken from oneDNN's kernels; shorter ones stay with them
// where they come as a part of something else.
inline constexpr int64_t kMostSummedInF32 = 32;

// Where the elements of n x channels x space lie: element (n, c, s) at
// ((n * blocks() + c / block) * space + s) * block + c % block. Row-major: a block of 1; channels
// last: a block of all; oneDNN's blocked layouts: 8 or 16, the last one filled up.
struct ChannelPlaces {
  int64_t n = 0, channels = 0, space = 0;
  int64_t block = 1;
  DType dtype = DType::f32;  // or bf16

  int64_t blocks() const { return (channels + block - 1) / block; }
};

// Those of a layout; `spec` becomes row-major where it is another than those above.
ChannelPlaces channel_places(TensorSpec& spec);

// The layout of n observations that lie one behind the other, each as in `spec`; none where that is
// not known.
std::optional<TensorSpec> of_more_observations(const TensorSpec& spec, int64_t n);

// totals[k] += the elements of `count` neighbouring places, `block` of them each, that belong to
// channel k of a block. Thread-safe; allocates nothing.
void add_places(const float* x, int64_t count, int64_t block, double* totals);
void add_places(const BFloat16* x, int64_t count, int64_t block, double* totals);

// The pass that makes the gradient of a bias (input 2) from that of the output: n x channels, or
// n x channels x space.
Pass bias_gradient(TensorSpec diff_output);

}  // namespace lockstep::kernels::cpu
