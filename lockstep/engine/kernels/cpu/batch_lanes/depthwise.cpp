#include "lockstep/engine/kernels/cpu/batch_lanes/depthwise.h"

#include <algorithm>
#include <type_traits>

#include "lockstep/engine/kernels/cpu/batch_lanes/axes.h"
#include "lockstep/engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/batch_lanes/depthwise.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/batch_lanes/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Columns whose sums are kept in registers.
constexpr int kColumns = 8;

// The summands of the results in a row.
template <class T>
struct Taps {
  static constexpr int64_t kMost = LanesConvolution::kMostKernel * LanesConvolution::kMostKernel;
  int64_t count = 0;
  const T* from[kMost];  // at column 0
  const float* weight[kMost];
  int64_t column[kMost];  // offset, to detect positions outside the images
};

// Strides of input and output.
struct Steps {
  int64_t columns, of_columns;  // of the input; input columns between adjacent results
  int64_t n;
  int64_t to_column;  // between adjacent columns of the results
  // Number of input channels that a result sums over, and their strides.
  int64_t sources, from_source, weights_source;
};

// Computes `columns` adjacent results, starting from `bias`. With `edge`, windows may extend beyond
// the images, which are zero there.
template <int columns, bool edge, class T>
HWY_INLINE void sums(const Taps<T>& taps, const Steps& steps, int64_t column, float bias, T* y) {
  alignas(64) static constexpr T kZeros[kLanes] = {};
  const D d;
  V sum[columns];
  for (int c = 0; c < columns; ++c) sum[c] = hn::Set(d, bias);
  const int64_t of_columns = steps.of_columns, step = of_columns * steps.n;
  const auto width = static_cast<uint64_t>(steps.columns);
  int64_t at = column * step, weight = 0;
  for (int64_t s = 0; s < steps.sources; ++s) {
    for (int64_t t = 0; t < taps.count; ++t) {
      const V w = hn::Set(d, taps.weight[t][weight]);
      const T* const from = taps.from[t] + at;
      const int64_t first = column * of_columns + taps.column[t];
      for (int c = 0; c < columns; ++c) {
        const T* there = from + c * step;
        if (edge) there = static_cast<uint64_t>(first + c * of_columns) < width ? there : kZeros;
        sum[c] = hn::MulAdd(w, load_images(there), sum[c]);
      }
    }
    at += steps.from_source;
    weight += steps.weights_source;
  }
  for (int c = 0; c < columns; ++c) store_images(sum[c], y + c * steps.to_column);
}

// Both directions. They differ in the roles of channels and filters.
template <class T>
class Depthwise {
 public:
  Depthwise(const LanesConvolution& q, bool back, const void* from, const float* weights,
            const float* bias, void* to)
      : q_(q),
        back_(back),
        filters_(q.filters / q.channels),
        from_rows_(back ? q.result_rows : q.rows),
        from_columns_(back ? q.result_columns : q.columns),
        to_channels_(back ? q.channels : q.filters),
        to_rows_(back ? q.rows : q.result_rows),
        to_columns_(back ? q.columns : q.result_columns),
        rows_{q.window, 0, back, to_rows_},
        columns_{q.window, 1, back, to_columns_},
        from_(static_cast<const T*>(from)),
        weights_(weights),
        bias_(bias),
        to_(static_cast<T*>(to)) {}

  void run() const {
    const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
    for (int64_t r = 0; r < rows_.count(); ++r) {
      const LanesAxis rows = rows_.at(r);
      for (int64_t c = 0; c < columns_.count(); ++c) {
        const LanesAxis columns = columns_.at(c);
        for (int64_t channel = 0; channel < to_channels_; ++channel) {
          for (int64_t lane = 0; lane < q_.n; lane += lanes) take(channel, rows, columns, lane);
        }
      }
    }
  }

 private:
  void take(int64_t channel, const LanesAxis& rows, const LanesAxis& columns, int64_t lane) const {
    const int64_t from_row = from_columns_ * q_.n, to_row = to_columns_ * q_.n;
    const int64_t window_columns = q_.window.kernel[1], window_rows = q_.window.kernel[0];
    // A gradient of the images sums over all filters of its channel.
    const int64_t sources = back_ ? filters_ : 1, from_size = from_rows_ * from_row;
    const int64_t first = back_ ? channel * filters_ : channel / filters_;
    const T* const from = from_ + first * from_size + lane;
    const float* const weights =
        weights_ + (back_ ? first : channel) * window_rows * window_columns;
    const Steps steps{
        from_columns_, columns.from_step,           q_.n, columns.step * q_.n, sources,
        from_size,     window_rows * window_columns};
    const float bias = bias_ ? bias_[channel] : 0;
    const auto inside = [&](int64_t j) {
      const int64_t at = j * columns.from_step;
      return at + columns.lowest() >= 0 && at + columns.highest() < from_columns_;
    };
    // Range of results whose whole windows lie in the images.
    int64_t begin = 0, end = columns.count;
    while (begin < end && !inside(begin)) ++begin;
    while (end > begin && !inside(end - 1)) --end;
    T* const to = to_ + channel * to_rows_ * to_row + lane;
    for (int64_t j = 0; j < rows.count; ++j) {
      T* const y = to + (rows.first + j * rows.step) * to_row + columns.first * q_.n;
      Taps<T> taps;
      for (size_t r = 0; r < static_cast<size_t>(rows.taps); ++r) {
        const int64_t at = j * rows.from_step + rows.offset[r];
        if (at < 0 || at >= from_rows_) continue;
        // Places of the backward direction are those of turned windows.
        const int64_t row = back_ ? window_rows - 1 - rows.place[r] : rows.place[r];
        for (size_t c = 0; c < static_cast<size_t>(columns.taps); ++c) {
          const int64_t place = columns.place[c];
          const int64_t column = back_ ? window_columns - 1 - place : place;
          taps.from[taps.count] = from + at * from_row + columns.offset[c] * q_.n;
          taps.weight[taps.count] = weights + row * window_columns + column;
          taps.column[taps.count++] = columns.offset[c];
        }
      }
      const T* const next =
          from + std::min((j + 1) * rows.from_step + rows.highest(), from_rows_ - 1) * from_row;
      int64_t column = 0;
      const auto take_some = [&]<int some>(std::integral_constant<int, some>) {
        for (; column + some <= columns.count; column += some) {
          T* const to_here = y + column * steps.to_column;
          for (int64_t c = 0; c < some * columns.from_step; ++c) {
            hwy::Prefetch(next + (column * columns.from_step + c) * q_.n);
          }
          for (int64_t c = 0; c < some; ++c) {
            hwy::Prefetch(to_here + rows.step * to_row + c * steps.to_column);
          }
          if (column >= begin && column + some <= end) {
            sums<some, false>(taps, steps, column, bias, to_here);
          } else {
            sums<some, true>(taps, steps, column, bias, to_here);
          }
        }
      };
      take_some(std::integral_constant<int, kColumns>());
      take_some(std::integral_constant<int, kColumns / 2>());
      take_some(std::integral_constant<int, 1>());
    }
  }

  const LanesConvolution& q_;
  const bool back_;
  const int64_t filters_;  // per channel
  const int64_t from_rows_, from_columns_, to_channels_, to_rows_, to_columns_;
  const LanesPhases rows_, columns_;
  const T* const from_;
  const float* const weights_;
  const float* const bias_;
  T* const to_;
};

void depthwise(const LanesConvolution& q, bool back, const void* from, const float* weights,
               const float* bias, void* to) {
  with_elements(q.dtype,
                [&]<class T>(T*) { Depthwise<T>(q, back, from, weights, bias, to).run(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(depthwise);

void lanes_depthwise(const LanesConvolution& p, const void* x, const float* weights,
                     const float* bias, void* y) {
  HWY_DYNAMIC_DISPATCH(depthwise)(p, false, x, weights, bias, y);
}

void lanes_depthwise_data(const LanesConvolution& p, const void* dy, const float* weights,
                          void* dx) {
  HWY_DYNAMIC_DISPATCH(depthwise)(p, true, dy, weights, nullptr, dx);
}

}  // namespace lockstep::kernels::cpu
#endif
