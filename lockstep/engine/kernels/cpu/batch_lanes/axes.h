// Convolution along one axis as sums over taps. The gradient with respect to the images is also
// such a convolution, a different one for each phase of the stride. Pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/engine/kernels/cpu/batch_lanes/convolution.h"

namespace lockstep::kernels::cpu {

// Describes `count` results along an axis. Result j is at first + j * step. It is the sum over taps
// of the element at j * from_step + offset, times weight number `element` of the window along this
// axis.
struct LanesAxis {
  int64_t first = 0, step = 1, count = 0, from_step = 1;
  int64_t taps = 0;
  std::array<int64_t, LanesConvolution::kMostKernel> offset{}, element{};  // offsets ascend

  void add(int64_t o, int64_t p) {
    const auto t = static_cast<size_t>(taps++);
    offset[t] = o;
    element[t] = p;
  }
  int64_t lowest() const { return taps > 0 ? offset[0] : 0; }
  int64_t highest() const { return taps > 0 ? offset[static_cast<size_t>(taps) - 1] : 0; }
  // Number of rows or columns that a result needs, from lowest() on.
  int64_t span() const { return taps > 0 ? highest() - lowest() + 1 : 0; }
  // One past the last element that is needed.
  int64_t end() const { return count > 0 ? (count - 1) * from_step + highest() + 1 : 0; }
};

inline LanesAxis forward_axis(const Window& w, size_t axis, int64_t results) {
  LanesAxis a{.count = results, .from_step = w.stride[axis]};
  for (int64_t k = 0; k < w.kernel[axis]; ++k) a.add(k * w.dilation[axis] - w.pad_begin[axis], k);
  return a;
}

// Describes those of `size` rows or columns of the images whose index modulo the stride is `phase`.
// Their elements are those of turned windows. Some phases have no taps.
inline LanesAxis backward_axis(const Window& w, size_t axis, int64_t size, int64_t phase) {
  const int64_t stride = w.stride[axis];
  LanesAxis a{.first = phase,
              .step = stride,
              .count = phase < size ? (size - phase + stride - 1) / stride : 0};
  for (int64_t k = w.kernel[axis] - 1; k >= 0; --k) {
    const int64_t at = phase + w.pad_begin[axis] - k * w.dilation[axis];
    if (at % stride == 0) a.add(at / stride, w.kernel[axis] - 1 - k);
  }
  return a;
}

// Both directions along one axis.
struct LanesPhases {
  const Window& window;
  size_t axis;
  bool back;
  int64_t results;  // rows or columns of the images if `back`

  int64_t count() const { return back ? std::min(window.stride[axis], results) : 1; }
  LanesAxis at(int64_t phase) const {
    return back ? backward_axis(window, axis, results, phase) : forward_axis(window, axis, results);
  }
};

// Columns of zeros that windows need before and after rows of `columns`.
struct LanesMargins {
  int64_t before = 0, after = 0;

  LanesMargins(const LanesPhases& phases, int64_t columns) {
    for (int64_t p = 0; p < phases.count(); ++p) {
      const LanesAxis a = phases.at(p);
      before = std::max(before, -a.lowest());
      after = std::max(after, a.end() - columns);
    }
  }
};

}  // namespace lockstep::kernels::cpu
