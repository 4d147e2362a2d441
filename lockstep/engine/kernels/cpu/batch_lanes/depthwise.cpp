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

// Copies in f32 of as many rows of some channels as a window needs, between zeros: a window then
// needs no comparisons at the edges, and no rows that are powers of two apart.
template <class T>
class Rows {
 public:
  // Channels have `rows` rows of `columns` elements of n images.
  Rows(int64_t channels, int64_t rows, int64_t columns, int64_t n, const LanesAxis& axis,
       const LanesMargins& margins, float* memory)
      : channels_(channels),
        all_(rows),
        columns_(columns),
        n_(n),
        axis_(axis),
        before_(margins.before * lanes()),
        width_((margins.before + columns + margins.after) * lanes()),
        memory_(memory),
        fetched_(0) {
    const int64_t end = before_ + columns * lanes();
    for (int64_t r = 0; r < axis.span() * channels; ++r) {
      std::fill_n(memory + r * width_, before_, 0.0f);
      std::fill_n(memory + r * width_ + end, width_ - end, 0.0f);
    }
  }
  static int64_t lanes() { return static_cast<int64_t>(hn::Lanes(D())); }
  // Between the same row of adjacent channels.
  int64_t channel() const { return axis_.span() * width_; }
  // Column 0 of a fetched row of the first channel.
  float* row(int64_t r) const {
    return memory_ + (r - axis_.lowest()) % axis_.span() * width_ + before_;
  }
  // Fetches the rows of the images that result j of the axis needs. j must not decrease.
  void fetch(const T* from, int64_t j) {
    const int64_t begin = j * axis_.from_step + axis_.lowest(),
                  end = std::min(begin + axis_.span(), all_);
    for (int64_t r = std::max(begin, fetched_); r < end; ++r) {
      for (int64_t c = 0; c < channels_; ++c) {
        const T* const at = from + (c * all_ + r) * columns_ * n_;
        float* const to = row(r) + c * channel();
        for (int64_t i = 0; i < columns_; ++i) {
          store_images(load_images(at + i * n_), to + i * lanes());
        }
      }
    }
    fetched_ = std::max(fetched_, end);
  }

 private:
  const int64_t channels_, all_, columns_, n_;
  const LanesAxis& axis_;
  const int64_t before_, width_;
  float* const memory_;
  int64_t fetched_;  // all rows before this are fetched
};

// The summands of the results in a row.
struct Taps {
  static constexpr int64_t kMost = LanesConvolution::kMostKernel * LanesConvolution::kMostKernel;
  int64_t count = 0;
  const float* from[kMost];  // at column 0
  const float* weight[kMost];
};

// Strides of copied rows and results.
struct Steps {
  int64_t from_column, to_column;  // between adjacent results
  // Number of input channels that a result sums over, and their strides.
  int64_t sources, from_source, weights_source;
};

// Computes `columns` adjacent results, starting from `bias`. `adjacent`: so are their elements.
template <int columns, bool adjacent, class T>
HWY_INLINE void sums(const Taps& taps, const Steps& steps, int64_t column, float bias, T* y) {
  const D d;
  V sum[columns];
  for (int c = 0; c < columns; ++c) sum[c] = hn::Set(d, bias);
  const int64_t step = adjacent ? static_cast<int64_t>(hn::Lanes(d)) : steps.from_column;
  int64_t at = column * step, weight = 0;
  for (int64_t s = 0; s < steps.sources; ++s) {
    for (int64_t t = 0; t < taps.count; ++t) {
      const V w = hn::Set(d, taps.weight[t][weight]);
      const float* const from = taps.from[t] + at;
      for (int c = 0; c < columns; ++c) {
        sum[c] = hn::MulAdd(w, hn::Load(d, from + c * step), sum[c]);
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
            const float* bias, void* to, float* scratch)
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
        margins_(columns_, from_columns_),
        from_(static_cast<const T*>(from)),
        weights_(weights),
        bias_(bias),
        to_(static_cast<T*>(to)),
        scratch_(scratch) {}

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
    Rows<T> copies(sources, from_rows_, from_columns_, q_.n, rows, margins_, scratch_);
    const Steps steps{columns.from_step * copies.lanes(), columns.step * q_.n, sources,
                      copies.channel(), window_rows * window_columns};
    const float bias = bias_ ? bias_[channel] : 0;
    T* const to = to_ + channel * to_rows_ * to_row + lane;
    for (int64_t j = 0; j < rows.count; ++j) {
      T* const y = to + (rows.first + j * rows.step) * to_row + columns.first * q_.n;
      if (rows.taps > 0) copies.fetch(from, j);
      Taps taps;
      for (size_t r = 0; r < static_cast<size_t>(rows.taps); ++r) {
        const int64_t at = j * rows.from_step + rows.offset[r];
        if (at < 0 || at >= from_rows_) continue;
        // Elements of the backward direction are those of turned windows.
        const int64_t row = back_ ? window_rows - 1 - rows.element[r] : rows.element[r];
        for (size_t c = 0; c < static_cast<size_t>(columns.taps); ++c) {
          const int64_t element = columns.element[c];
          const int64_t column = back_ ? window_columns - 1 - element : element;
          taps.from[taps.count] = copies.row(at) + columns.offset[c] * copies.lanes();
          taps.weight[taps.count++] = weights + row * window_columns + column;
        }
      }
      int64_t column = 0;
      const auto take_some = [&]<int some>(std::integral_constant<int, some>) {
        for (; column + some <= columns.count; column += some) {
          T* const to_here = y + column * steps.to_column;
          for (int64_t c = 0; c < some; ++c) {
            hwy::Prefetch(to_here + rows.step * to_row + c * steps.to_column);
          }
          if (columns.from_step == 1) {
            sums<some, true>(taps, steps, column, bias, to_here);
          } else {
            sums<some, false>(taps, steps, column, bias, to_here);
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
  const LanesMargins margins_;
  const T* const from_;
  const float* const weights_;
  const float* const bias_;
  T* const to_;
  float* const scratch_;
};

void depthwise(const LanesConvolution& q, bool back, const void* from, const float* weights,
               const float* bias, void* to, float* scratch) {
  with_elements(
      q.dtype, [&]<class T>(T*) { Depthwise<T>(q, back, from, weights, bias, to, scratch).run(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(depthwise);

size_t lanes_depthwise_scratch(const LanesConvolution& p, bool back) {
  const int64_t from_columns = back ? p.result_columns : p.columns;
  const LanesPhases down{p.window, 0, back, back ? p.rows : p.result_rows},
      across{p.window, 1, back, back ? p.columns : p.result_columns};
  const LanesMargins margins(across, from_columns);
  int64_t span = 0;
  for (int64_t phase = 0; phase < down.count(); ++phase) {
    span = std::max(span, down.at(phase).span());
  }
  const int64_t sources = back ? p.filters / p.channels : 1;
  const int64_t width = margins.before + from_columns + margins.after;
  return static_cast<size_t>(span * sources * width * kLanes) * sizeof(float);
}

void lanes_depthwise(const LanesConvolution& p, const void* x, const float* weights,
                     const float* bias, void* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(depthwise)(p, false, x, weights, bias, y, scratch);
}

void lanes_depthwise_data(const LanesConvolution& p, const void* dy, const float* weights, void* dx,
                          float* scratch) {
  HWY_DYNAMIC_DISPATCH(depthwise)(p, true, dy, weights, nullptr, dx, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
