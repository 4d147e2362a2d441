#include "lockstep/engine/kernels/losses/softmax.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/losses/row_sums.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

LOCKSTEP_FMA_CLONES void forward_of_rows(const float* x, float* y, int64_t rows, int64_t n) {
  softmax_of_rows(x, y, rows, n, [](int64_t, int, const RowSums&) __attribute__((always_inline)){});
}

// Rows side by side, as positions of an image are.
LOCKSTEP_INLINE void forward_of_tile(const float* x, float* y, int64_t n, int64_t stride,
                                     int rows) {
  RowSums sums;
  exponentials_of_rows(x, y, n, stride, rows, sums);
  float factor[kLanes];
  for (int r = 0; r < rows; ++r) factor[r] = static_cast<float>(1 / sums.total[r]);
  for (int64_t c = 0; c < n; ++c) {
#pragma GCC ivdep
    for (int r = 0; r < rows; ++r) y[c * stride + r] *= factor[r];
  }
}

LOCKSTEP_FMA_CLONES void forward_of_positions(const float* x, float* y, int64_t n, int64_t space) {
  int64_t s = 0;
  for (; s + kLanes <= space; s += kLanes) forward_of_tile(x + s, y + s, n, space, kLanes);
  if (s < space) forward_of_tile(x + s, y + s, n, space, static_cast<int>(space - s));
}

LOCKSTEP_INLINE void backward_of_tile(const float* y, const float* dy, float* dx, int64_t n,
                                      int64_t stride, int rows) {
  double dot[kLanes];
  sums_over_classes(
      n, rows, dot, [=](int64_t c, int r) __attribute__((always_inline)) {
        return double{y[c * stride + r]} * double{dy[c * stride + r]};
      });
  for (int64_t c = 0; c < n; ++c) {
#pragma GCC ivdep
    for (int r = 0; r < rows; ++r) {
      const int64_t i = c * stride + r;
      dx[i] = y[i] * (dy[i] - static_cast<float>(dot[r]));
    }
  }
}

LOCKSTEP_FMA_CLONES void backward_of_rows(const float* y, const float* dy, float* dx, int64_t rows,
                                          int64_t n) {
  if (n >= kShort) {
    for (int64_t row = 0; row < rows; ++row, y += n, dy += n, dx += n) {
      const double dot = sum_over_classes(
          n, [=](int64_t c)
                 __attribute__((always_inline)) { return double{y[c]} * double{dy[c]}; });
      const auto rounded = static_cast<float>(dot);
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) dx[c] = y[c] * (dy[c] - rounded);
    }
    return;
  }
  float tile[kShort * kLanes], gradients[kShort * kLanes];
  for (int64_t row = 0; row < rows; row += kLanes) {
    const auto count = static_cast<int>(std::min<int64_t>(rows - row, kLanes));
    side_by_side(y + row * n, n, count, tile);
    side_by_side(dy + row * n, n, count, gradients);
    backward_of_tile(tile, gradients, gradients, n, kLanes, kLanes);
    one_after_the_other(gradients, n, count, dx + row * n);
  }
}

LOCKSTEP_FMA_CLONES void backward_of_positions(const float* y, const float* dy, float* dx,
                                               int64_t n, int64_t space) {
  int64_t s = 0;
  for (; s + kLanes <= space; s += kLanes) {
    backward_of_tile(y + s, dy + s, dx + s, n, space, kLanes);
  }
  if (s < space) {
    backward_of_tile(y + s, dy + s, dx + s, n, space, static_cast<int>(space - s));
  }
}

}  // namespace

// Element (n, c, s) is at index (n * channels + c) * space + s.
Kernel softmax(const SoftmaxProblem& p) {
  const TensorSpec spec = p.src.plain();
  const int64_t rows = spec.shape[0], channels = spec.shape[1];
  const int64_t space = spec.shape.elements() / std::max<int64_t>(rows * channels, 1);
  const int64_t image = channels * space;
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass({input(0, spec)}, {output(0, spec)},
                            [=](void* const* r, void* const* w, const RandomContext&) {
                              if (space == 1)
                                return forward_of_rows(in(r, 0), out(w, 0), rows, channels);
                              for (int64_t i = 0; i < rows * image; i += image) {
                                forward_of_positions(in(r, 0) + i, out(w, 0) + i, channels, space);
                              }
                            });
  kernel.backward.push_back(own_pass(
      {output(0, spec), diff_output(0, spec)}, {diff_input(0, spec)},
      [=](void* const* r, void* const* w, const RandomContext&) {
        if (space == 1) return backward_of_rows(in(r, 0), in(r, 1), out(w, 0), rows, channels);
        for (int64_t i = 0; i < rows * image; i += image) {
          backward_of_positions(in(r, 0) + i, in(r, 1) + i, out(w, 0) + i, channels, space);
        }
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
