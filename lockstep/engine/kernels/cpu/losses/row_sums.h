// Exponentials and sums of rows of classes, for softmax and cross-entropy. Class c of a row belongs
// to virtual lane c mod 16, whatever the vectors are. Lanes are sums in double, in order, and are
// added in a fixed tree. For callers with LOCKSTEP_FMA_CLONES.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "lockstep/engine/kernels/elementwise/functions.h"

namespace lockstep::kernels::cpu {

inline constexpr int kLanes = 16;

// Adds `lanes` lanes, a power of two, of `width` numbers each; the sums are then in the first.
template <int width>
LOCKSTEP_INLINE void add_lanes(double* sums, int lanes) {
  for (int half = lanes / 2 * width; half >= width; half /= 2) {
#pragma GCC ivdep
    for (int i = 0; i < half; ++i) sums[i] += sums[half + i];
  }
}

// The sum of term(c) for 0 <= c < n.
template <class Term>
LOCKSTEP_INLINE double sum_over_classes(int64_t n, const Term& term) {
  double lanes[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(c + l);
  }
  for (int l = 0; c + l < n; ++l) lanes[l] += term(c + l);
  add_lanes<1>(lanes, kLanes);
  return lanes[0];
}

// The largest element. A NaN is found or lost; the sum of exponentials then is NaN.
LOCKSTEP_INLINE float top_of(const float* x, int64_t n) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, x[0]);
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) lanes[l] = lanes[l] < x[c + l] ? x[c + l] : lanes[l];
  }
  for (; c < n; ++c) lanes[0] = lanes[0] < x[c] ? x[c] : lanes[0];
  float top = lanes[0];
  for (const float other : lanes) top = top < other ? other : top;
  return top;
}

// For each of up to 16 rows its largest element and the sum of exp(x - top).
struct RowSums {
  float top[kLanes];
  double total[kLanes];
};

// y = exp(x - top) of a row.
LOCKSTEP_INLINE void exponentials_of_row(const float* x, float* y, int64_t n, RowSums& sums) {
  const float top = top_of(x, n);
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) y[c] = exponential(x[c] - top);
  sums.top[0] = top;
  sums.total[0] = sum_over_classes(
      n, [=](int64_t c) __attribute__((always_inline)) { return double{y[c]}; });
}

// Class c of the sum of a row, whose classes are side by side with those of `rows` others, is
// term(c, row).
template <class Term>
LOCKSTEP_INLINE void sums_over_classes(int64_t n, int rows, double* total, const Term& term) {
  const auto lanes =
      static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(n, kLanes))));
  double sums[kLanes * kLanes];
  std::fill_n(sums, lanes * kLanes, 0.0);
  for (int64_t c = 0; c < n; ++c) {
    double* lane = sums + c % kLanes * kLanes;
#pragma GCC ivdep
    for (int r = 0; r < rows; ++r) lane[r] += term(c, r);
  }
  add_lanes<kLanes>(sums, lanes);
  std::copy_n(sums, kLanes, total);
}

// y = exp(x - top) of `rows` rows side by side: class c of row r is at c * stride + r.
LOCKSTEP_INLINE void exponentials_of_rows(const float* x, float* y, int64_t n, int64_t stride,
                                          int rows, RowSums& sums) {
  std::copy_n(x, rows, sums.top);
  for (int64_t c = 1; c < n; ++c) {
    const float* from = x + c * stride;
#pragma GCC ivdep
    for (int r = 0; r < rows; ++r) sums.top[r] = sums.top[r] < from[r] ? from[r] : sums.top[r];
  }
  for (int64_t c = 0; c < n; ++c) {
#pragma GCC ivdep
    for (int r = 0; r < rows; ++r) y[c * stride + r] = exponential(x[c * stride + r] - sums.top[r]);
  }
  sums_over_classes(
      n, rows, sums.total, [=](int64_t c, int r) __attribute__((always_inline)) {
        return double{y[c * stride + r]};
      });
}

// Rows with fewer classes are computed side by side.
inline constexpr int64_t kShort = 64;

// Copies 16 rows of n classes side by side, or back.
LOCKSTEP_INLINE void side_by_side(const float* x, int64_t n, int rows, float* to) {
  for (int64_t c = 0; c < n; ++c) {
    for (int r = 0; r < rows; ++r) to[c * kLanes + r] = x[r * n + c];
    for (int r = rows; r < kLanes; ++r) to[c * kLanes + r] = 0;
  }
}
LOCKSTEP_INLINE void one_after_the_other(const float* from, int64_t n, int rows, float* y) {
  for (int r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < n; ++c) y[r * n + c] = from[c * kLanes + r];
  }
}

// y = softmax of each row of n classes. Then calls after(first row, number of rows, RowSums).
template <class After>
LOCKSTEP_INLINE void softmax_of_rows(const float* x, float* y, int64_t rows, int64_t n,
                                     const After& after) {
  RowSums sums;
  if (n >= kShort) {
    for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
      exponentials_of_row(x, y, n, sums);
      const auto factor = static_cast<float>(1 / sums.total[0]);
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) y[c] *= factor;
      after(row, 1, sums);
    }
    return;
  }
  float tile[kShort * kLanes];
  for (int64_t row = 0; row < rows; row += kLanes) {
    const auto count = static_cast<int>(std::min<int64_t>(rows - row, kLanes));
    side_by_side(x + row * n, n, count, tile);
    exponentials_of_rows(tile, tile, n, kLanes, kLanes, sums);
    float factor[kLanes];
    for (int r = 0; r < kLanes; ++r) factor[r] = static_cast<float>(1 / sums.total[r]);
    for (int64_t c = 0; c < n; ++c) {
#pragma GCC ivdep
      for (int r = 0; r < kLanes; ++r) tile[c * kLanes + r] *= factor[r];
    }
    one_after_the_other(tile, n, count, y + row * n);
    after(row, count, sums);
  }
}

}  // namespace lockstep::kernels::cpu
