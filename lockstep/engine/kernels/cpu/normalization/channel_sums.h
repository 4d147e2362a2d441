// Sums over observations and space for each channel, in double: gradients of biases, and means.
// oneDNN computes such sums sequentially in f32, which loses a digit for every hundred elements or
// so.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels::cpu {

// Sums of more elements than this are computed here instead of by oneDNN. Shorter sums stay in
// oneDNN if its kernel computes them along with another result.
inline constexpr int64_t kMostSummedInF32 = 32;

// Positions of the elements of n x channels x space. Element (n, c, s) is at index
// ((n * blocks() + c / block) * space + s) * block + c % block. `block` is 1 for row-major memory,
// all channels for channels last, and 8 or 16 for oneDNN's blocked layouts, whose last block is
// padded.
struct ChannelLayout {
  int64_t n = 0, channels = 0, space = 0;
  int64_t block = 1;
  DType dtype = DType::f32;  // f32 or bf16

  int64_t blocks() const { return (channels + block - 1) / block; }
};

// The positions for a layout. Makes `spec` row-major if its layout is none of the above.
ChannelLayout channel_layout(TensorSpec& spec);

// The layout of n consecutive observations, each with the layout of `spec`; nullopt if the layout
// is unknown.
std::optional<TensorSpec> of_more_observations(const TensorSpec& spec, int64_t n);

// The layout of another number of channels in whole blocks, as those of `spec`; nullopt if there
// are no blocks, or one is not whole.
std::optional<TensorSpec> of_other_channels(const TensorSpec& spec, int64_t channels);

// totals[k] += the elements for channel k of a block, over `count` adjacent positions of `block`
// elements each. Thread-safe; allocates nothing.
void add_positions(const float* x, int64_t count, int64_t block, double* totals);
void add_positions(const BFloat16* x, int64_t count, int64_t block, double* totals);

// The pass that computes the gradient of a bias (input 2) from the output's gradient, n x channels
// or n x channels x space.
Pass bias_gradient(TensorSpec diff_output);

}  // namespace lockstep::kernels::cpu
