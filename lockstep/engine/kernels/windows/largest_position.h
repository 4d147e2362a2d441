// Where the largest element of a window is, for CPUs and GPUs.
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/kernels/interface/host_device.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels {

// Depth, rows and columns; axes that a problem does not have come first, with one element.
struct WindowBox {
  int64_t size[kMostAxes], positions[kMostAxes], kernel[kMostAxes], stride[kMostAxes],
      pad[kMostAxes];

  WindowBox(const Shape& src, const Shape& dst, const Window& window) {
    const int missing = kMostAxes - window.axes();
    for (int a = 0; a < kMostAxes; ++a) {
      const int from = a - missing;
      const auto axis = static_cast<size_t>(from);
      size[a] = from < 0 ? 1 : src[2 + from];
      positions[a] = from < 0 ? 1 : dst[2 + from];
      kernel[a] = from < 0 ? 1 : window.kernel[axis];
      stride[a] = from < 0 ? 1 : window.stride[axis];
      pad[a] = from < 0 ? 0 : window.pad_begin[axis];
    }
  }

  // The index, in a plane of `size` elements, of the largest element of the window at a position of
  // the result's plane: the first of equal ones. -1: the window has padding alone.
  LOCKSTEP_HOST_DEVICE int64_t largest(const float* plane, int64_t position) const {
    int64_t at[kMostAxes];
    for (int a = kMostAxes; a-- > 0;) {
      at[a] = position % positions[a] * stride[a] - pad[a];
      position /= positions[a];
    }
    int64_t best = -1;
    for (int64_t z = 0; z < kernel[0]; ++z) {
      if (at[0] + z < 0 || at[0] + z >= size[0]) continue;
      for (int64_t y = 0; y < kernel[1]; ++y) {
        if (at[1] + y < 0 || at[1] + y >= size[1]) continue;
        for (int64_t x = 0; x < kernel[2]; ++x) {
          if (at[2] + x < 0 || at[2] + x >= size[2]) continue;
          const int64_t index = ((at[0] + z) * size[1] + at[1] + y) * size[2] + at[2] + x;
          if (best < 0 || plane[index] > plane[best]) best = index;
        }
      }
    }
    return best;
  }
};

}  // namespace lockstep::kernels
