// Weights of convolutions as kernels for images in lanes read them: output channels in tiles that
// fit in registers, each tile by input channel. Thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels::cpu {

struct LanesWeights {
  int64_t channels = 0, filters = 0;  // of one group
  int64_t rows = 3, columns = 3;      // of the window
  // For the gradient of the images: windows are rotated by 180 degrees, and map filters to
  // channels.
  bool turned = false;
  // Stores G g G^T of Winograd's F(4x4, 3x3), 36 numbers for each window of 3 x 3 instead of 9.
  bool winograd = false;
  int64_t groups = 1;  // consecutive in memory
  // f32 or bf16. In bf16 each number is followed by that of the next input channel.
  DType dtype = DType::f32;

  // Input and output channels of the convolution.
  int64_t in() const { return turned ? filters : channels; }
  int64_t out() const { return turned ? channels : filters; }
  // Steps of a sum over input channels (LanesWinograd).
  int64_t steps() const { return dtype == DType::bf16 ? (in() + 1) / 2 : in(); }
  // Numbers stored per window.
  int64_t window_elements() const { return winograd ? 36 : rows * columns; }
  friend bool operator==(const LanesWeights&, const LanesWeights&) = default;
};

// Largest number of output channels in a tile. Tiles are as equal as possible.
inline constexpr int64_t kWeightTile = 6;
constexpr int64_t weight_tiles(int64_t out) { return (out + kWeightTile - 1) / kWeightTile; }
constexpr int64_t weight_tile_begin(int64_t out, int64_t tile) {
  return out * tile / weight_tiles(out);
}

// The layout of groups * filters x channels x window. Each group is stored as tiles x steps x
// elements of the window x channels of the tile; for Winograd as 36 x tiles x steps x channels of
// the tile. Tensors in this layout have dtype f32 even if their numbers are rounded to bf16.
TensorSpec lanes_weights_spec(const LanesWeights& w);
bool in_lanes_weights(const TensorSpec& spec);

}  // namespace lockstep::kernels::cpu
