// Weights of convolutions as kernels for images in lanes read them: result's channels in
// tiles that registers hold, for each tile channel by channel. Thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels::cpu {

struct LanesWeights {
  int64_t channels = 0, filters = 0;  // of a group
  int64_t rows = 3, columns = 3;      // of a window
  // For the gradient of the images: windows turned by half a circle, from filters to channels.
  bool turned = false;
  // 36 numbers for each window of 3 x 3, G g G^T of Winograd's F(4x4, 3x3), instead of 9.
  bool winograd = false;
  int64_t groups = 1;  // one behind the other
  // f32, or bf16, each number followed by that of the next channel that they multiply.
  DType dtype = DType::f32;

  // What they multiply, and what becomes of it.
  int64_t in() const { return turned ? filters : channels; }
  int64_t out() const { return turned ? channels : filters; }
  // Of a sum over `in` channels (LanesWinograd).
  int64_t steps() const { return dtype == DType::bf16 ? (in() + 1) / 2 : in(); }
  // Numbers of a window.
  int64_t places() const { return winograd ? 36 : rows * columns; }
  friend bool operator==(const LanesWeights&, const LanesWeights&) = default;
};

// Tiles have so many channels of the result at most, as even as can be.
inline constexpr int64_t kWeightTile = 6;
constexpr int64_t weight_tiles(int64_t out) { return (out + kWeightTile - 1) / kWeightTile; }
constexpr int64_t weight_tile_begin(int64_t out, int64_t tile) {
  return out * tile / weight_tiles(out);
}

// groups * filters x channels x window in this layout, for each group: tiles x steps x places x
// tile's channels; of Winograd's 36 x tiles x steps x tile's channels. Tensors of it are f32,
// rounded or not.
TensorSpec lanes_weights_spec(const LanesWeights& w);
bool in_lanes_weights(const TensorSpec& spec);

}  // namespace lockstep::kernels::cpu
