#include "lockstep/engine/kernels/cpu/batch_lanes/convolution.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/batch_lanes/axes.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/weights.h"
#include "lockstep/engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/batch_lanes/convolution.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/batch_lanes/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Columns of results that a tile keeps in registers.
constexpr int kColumns = 4;

// Images of channels x rows x columns x n.
struct Images {
  int64_t channels, rows, columns, n;
  int64_t row() const { return columns * n; }
  int64_t size() const { return rows * columns * n; }
};

// Copies of as many rows of some channels (pairs of channels for bfloat16) as a window needs,
// contiguous and between zeros: channels x (before + columns + after) vectors per row. In the
// images themselves, rows and channels are often powers of two apart, which causes cache conflicts.
template <class T>
class Rows {
 public:
  Rows(const Images& images, int64_t channels, const LanesAxis& axis, const LanesMargins& margins,
       float* memory)
      : images_(images),
        axis_(axis),
        before_(margins.before),
        width_(margins.before + images.columns + margins.after),
        channels_(channels),
        steps_((channels + kTogether<T> - 1) / kTogether<T>),
        memory_(memory),
        lanes_(static_cast<int64_t>(hn::Lanes(D()))),
        fetched_(axis.lowest()) {
    for (int64_t c = 0; c < axis.span() * steps_; ++c) {
      float* const row = memory + c * channel();
      std::fill_n(row, before_ * lanes_, 0.0f);
      std::fill_n(row + (before_ + images.columns) * lanes_, margins.after * lanes_, 0.0f);
    }
  }
  int64_t channel() const { return width_ * lanes_; }
  int64_t steps() const { return steps_; }
  // Column 0 of a fetched row.
  const float* row(int64_t row) const {
    return memory_ + (row - axis_.lowest()) % axis_.span() * steps_ * channel() + before_ * lanes_;
  }
  // Fetches the rows of the images that result j of the axis needs. j must not decrease.
  void fetch(const T* x, int64_t j) {
    const int64_t begin = j * axis_.from_step + axis_.lowest();
    const int64_t first = std::max<int64_t>(0, std::max(begin, fetched_)),
                  end = std::min(begin + axis_.span(), images_.rows);
    for (int64_t r = first; r < end; ++r) fetch_row(x, r);
    fetched_ = begin + axis_.span();
    row_ = std::max<int64_t>(0, std::max(begin + axis_.from_step, fetched_));
    channel_ = column_ = 0;
  }
  // Number of elements that prefetch() should fetch per row. 0 for few channels, whose few runs the
  // hardware prefetcher handles.
  int64_t ahead() const {
    return channels_ > 8 ? axis_.from_step * channels_ * images_.columns : 0;
  }
  // Prefetches up to `some` elements that result j + 1 needs.
  void prefetch(const T* x, int64_t some) {
    const int64_t end = std::min(fetched_ + axis_.from_step, images_.rows);
    for (; some > 0 && row_ < end; --some) {
      const T* const at = x + channel_ * images_.size() + row_ * images_.row();
      hwy::Prefetch(at + column_ * images_.n);
      if (++column_ < images_.columns) continue;
      column_ = 0;
      if (++channel_ < channels_) continue;
      channel_ = 0;
      ++row_;
    }
  }

 private:
  void fetch_row(const T* x, int64_t row) {
    float* to = const_cast<float*>(this->row(row));
    for (int64_t c = 0; c < channels_; c += kTogether<T>, to += channel()) {
      const T* const from = x + c * images_.size() + row * images_.row();
      for (int64_t column = 0; column < images_.columns; ++column) {
        V v = load_images(from + column * images_.n);
        if constexpr (kTogether<T> == 2) {
          const bool two = c + 1 < channels_;
          const T* const next = from + images_.size() + column * images_.n;
          v = pairs_of(v, two ? load_images(next) : hn::Zero(D()));
        }
        store_images(v, to + column * lanes_);
      }
    }
  }

  const Images& images_;
  const LanesAxis& axis_;
  int64_t before_, width_, channels_, steps_;
  float* memory_;
  int64_t lanes_;
  int64_t fetched_;                             // all rows before this are fetched
  int64_t row_ = 0, channel_ = 0, column_ = 0;  // position of prefetch()
};

// The summands of the results in a row, of `steps` channels (pairs of channels for bfloat16). Taps
// follow each other by differences, so that the loop over all of them computes few addresses.
struct Taps {
  int64_t count = 0, steps = 0;
  int64_t from_step = 0;  // between adjacent columns of the results
  const float* from = nullptr;
  int64_t element = 0;  // of the first tap's weights
  // To the next tap; from the last one to the first of the next step.
  int64_t next[LanesConvolution::kMostKernel * LanesConvolution::kMostKernel];
  int64_t next_element[LanesConvolution::kMostKernel * LanesConvolution::kMostKernel];
};

// Position of a tile's results.
template <class T>
struct Results {
  T* first;
  int64_t channel, column;  // strides
  T* at(int64_t filter, int64_t c) const { return first + filter * channel + c * column; }
};

// Adds the products of some channels to `filters` x `columns` results of one row. With `bias` (by
// filter) it starts from the bias instead of the stored results. `at`: offset of the first column's
// input. Weights: steps x elements of the window x `of`.
template <int filters, int columns, class T>
HWY_INLINE void tile(const Taps& taps, int64_t at, const float* weights, int64_t of,
                     const float* bias, const Results<T>& results) {
  const D d;
  const Results<T> y = results;  // a local copy, which stores cannot alias
  V sums[filters][columns];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < columns; ++c) {
      sums[f][c] = bias ? hn::Set(d, bias[f]) : load_images(y.at(f, c));
    }
  }
  // A single loop without branches, so that the sums stay in registers.
  const int64_t from_step = taps.from_step, count = taps.count;
  const float* from = count > 0 ? taps.from + at : nullptr;
  weights += taps.element * of;
  for (int64_t left = taps.steps * count, t = 0; left > 0; --left) {
    add_outer_product<T>(weights, from, from_step, sums);
    from += taps.next[t];
    weights += taps.next_element[t] * of;
    t = t + 1 == count ? 0 : t + 1;
  }
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < columns; ++c) store_images(sums[f][c], y.at(f, c));
  }
}

template <class T, int filters>
void tile_of_columns(const Taps& taps, int64_t at, const float* weights, int64_t of,
                     const float* bias, int64_t columns, const Results<T>& y) {
  if (columns == 4) {
    tile<filters, 4>(taps, at, weights, of, bias, y);
  } else if (columns == 3) {
    tile<filters, 3>(taps, at, weights, of, bias, y);
  } else if (columns == 2) {
    tile<filters, 2>(taps, at, weights, of, bias, y);
  } else {
    tile<filters, 1>(taps, at, weights, of, bias, y);
  }
}

template <class T>
using TileOfColumns = void (*)(const Taps&, int64_t, const float*, int64_t, const float*, int64_t,
                               const Results<T>&);
#if HWY_TARGET <= HWY_AVX3
template <class T>
constexpr TileOfColumns<T> kTiles[] = {tile_of_columns<T, 1>, tile_of_columns<T, 2>,
                                       tile_of_columns<T, 3>, tile_of_columns<T, 4>,
                                       tile_of_columns<T, 5>, tile_of_columns<T, 6>};
#else
template <class T>
constexpr TileOfColumns<T> kTiles[] = {tile_of_columns<T, 1>, tile_of_columns<T, 2>,
                                       tile_of_columns<T, 3>};
#endif

// The convolution shared by forward and data.
template <class T>
class Convolve {
 public:
  Convolve(const LanesConvolution& q, bool back, const void* x, const void* weights,
           const float* bias, void* y, float* scratch)
      : from_{back ? q.filters : q.channels, back ? q.result_rows : q.rows,
              back ? q.result_columns : q.columns, q.n},
        to_{back ? q.channels : q.filters, back ? q.rows : q.result_rows,
            back ? q.columns : q.result_columns, q.n},
        rows_{q.window, 0, back, to_.rows},
        columns_{q.window, 1, back, to_.columns},
        margins_(columns_, from_.columns),
        kernel_columns_(q.window.kernel[1]),
        elements_(q.window_elements()),
        at_once_(q.at_once(from_.channels)),
        x_(static_cast<const T*>(x)),
        weights_(static_cast<const float*>(weights)),
        bias_(bias),
        y_(static_cast<T*>(y)),
        scratch_(scratch) {}

  void run() const {
    const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
    for (int64_t lane = 0; lane < to_.n; lane += lanes) {
      for (int64_t channel = 0; channel < from_.channels; channel += at_once_) {
        for (int64_t phase = 0; phase < rows_.count(); ++phase) {
          take(rows_.at(phase), channel, lane);
        }
      }
    }
  }

 private:
  // Computes the results of a phase of rows for channels from `channel` on.
  void take(const LanesAxis& axis, int64_t channel, int64_t lane) const {
    const int64_t channels = std::min(at_once_, from_.channels - channel);
    const T* const x = x_ + channel * from_.size() + lane;
    Rows<T> rows(from_, channels, axis, margins_, scratch_);
    int64_t tiles = 0;
    for (int64_t phase = 0; phase < columns_.count(); ++phase) {
      tiles += (columns_.at(phase).count + kColumns - 1) / kColumns * weight_tiles(to_.channels);
    }
    const Ahead ahead{x, (rows.ahead() + tiles - 1) / std::max<int64_t>(tiles, 1)};
    for (int64_t j = 0; j < axis.count; ++j) {
      if (axis.taps > 0) rows.fetch(x, j);
      T* const y = y_ + (axis.first + j * axis.step) * to_.row() + lane;
      for (int64_t phase = 0; phase < columns_.count(); ++phase) {
        convolve_row(rows, axis, j, columns_.at(phase), channel, y, ahead);
      }
    }
  }

  // Prefetch for each tile.
  struct Ahead {
    const T* x;
    int64_t some;
  };

  void convolve_row(Rows<T>& rows, const LanesAxis& axis, int64_t j, const LanesAxis& columns,
                    int64_t channel, T* y, const Ahead& ahead) const {
    constexpr float kNone[kMostFilters] = {};
    const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
    const int64_t all = (from_.channels + kTogether<T> - 1) / kTogether<T>;
    Taps taps;
    taps.from_step = columns.from_step * lanes;
    taps.steps = rows.steps();
    // Taps for which a whole tile lies outside the images would add zeros.
    size_t first = 0, last = 0;
    const auto take_taps = [&](int64_t begin, int64_t end) {
      const auto outside = [&](int64_t offset) {
        return (end - 1) * columns.from_step + offset < 0 ||
               begin * columns.from_step + offset >= from_.columns;
      };
      size_t from = 0, to = static_cast<size_t>(columns.taps);
      while (from < to && outside(columns.offset[from])) ++from;
      while (to > from && outside(columns.offset[to - 1])) --to;
      if (from == first && to == last) return;
      first = from;
      last = to;
      taps.count = 0;
      const float* before = nullptr;
      int64_t element_before = 0;
      const auto add = [&](const float* at, int64_t element) {
        if (taps.count == 0) {
          taps.from = at;
          taps.element = element;
        } else {
          taps.next[taps.count - 1] = at - before;
          taps.next_element[taps.count - 1] = element - element_before;
        }
        before = at;
        element_before = element;
        ++taps.count;
      };
      for (size_t r = 0; r < static_cast<size_t>(axis.taps); ++r) {
        const int64_t at = j * axis.from_step + axis.offset[r];
        if (at < 0 || at >= from_.rows) continue;
        const float* const row = rows.row(at);
        for (size_t c = first; c < last; ++c) {
          add(row + columns.offset[c] * lanes,
              axis.element[r] * kernel_columns_ + columns.element[c]);
        }
      }
      if (taps.count == 0) return;
      taps.next[taps.count - 1] = taps.from + rows.channel() - before;
      taps.next_element[taps.count - 1] = taps.element + elements_ - element_before;
    };
    const int64_t step = columns.step * to_.n;
    y += columns.first * to_.n;
    for (int64_t column = 0; column < columns.count; column += kColumns) {
      const int64_t some = std::min<int64_t>(kColumns, columns.count - column);
      take_taps(column, column + some);
      for (int64_t t = 0; t < weight_tiles(to_.channels); ++t) {
        const int64_t begin = weight_tile_begin(to_.channels, t),
                      of = weight_tile_begin(to_.channels, t + 1) - begin;
        rows.prefetch(ahead.x, ahead.some);
        for (int64_t i = 0, register_tiles = register_tiles_of(of); i < register_tiles; ++i) {
          const int64_t f = of * i / register_tiles, filters = of * (i + 1) / register_tiles - f;
          const float* const begin_with = channel > 0 ? nullptr : bias_ ? bias_ + begin + f : kNone;
          const Results<T> to{y + (begin + f) * to_.size() + column * step, to_.size(), step};
          // Prefetch distant results before they are written.
          for (int64_t c = kColumns; c < std::min<int64_t>(2 * kColumns, columns.count - column);
               ++c) {
            for (int64_t k = 0; k < filters; ++k) hwy::Prefetch(to.at(k, c));
          }
          kTiles<T>[filters - 1](
              taps, column * taps.from_step,
              weights_ + (begin * all + channel / kTogether<T> * of) * elements_ + f, of,
              begin_with, some, to);
        }
      }
    }
  }

  const Images from_, to_;
  const LanesPhases rows_, columns_;
  const LanesMargins margins_;
  const int64_t kernel_columns_, elements_, at_once_;
  const T* const x_;
  const float* const weights_;
  const float* const bias_;
  T* const y_;
  float* const scratch_;
};

void forward(const LanesConvolution& q, const void* x, const void* weights, const float* bias,
             void* y, float* scratch) {
  with_elements(q.dtype,
                [&]<class T>(T*) { Convolve<T>(q, false, x, weights, bias, y, scratch).run(); });
}

// The convolution in the opposite direction.
void data(const LanesConvolution& q, const void* dy, const void* weights, void* dx,
          float* scratch) {
  with_elements(
      q.dtype, [&]<class T>(T*) { Convolve<T>(q, true, dy, weights, nullptr, dx, scratch).run(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(forward);
HWY_EXPORT(data);

size_t LanesConvolution::scratch(bool back) const {
  const int64_t together = dtype == DType::bf16 ? 2 : 1;
  const int64_t in = (at_once(back ? filters : channels) + together - 1) / together;
  const int64_t from_columns = back ? result_columns : columns;
  const LanesPhases down{window, 0, back, back ? rows : result_rows},
      across{window, 1, back, back ? columns : result_columns};
  const LanesMargins margins(across, from_columns);
  int64_t span = 0;
  for (int64_t p = 0; p < down.count(); ++p) span = std::max(span, down.at(p).span());
  const int64_t width = margins.before + from_columns + margins.after;
  return static_cast<size_t>(span * in * width * kLanes) * sizeof(float);
}

void lanes_convolution(const LanesConvolution& p, const void* x, const void* weights,
                       const float* bias, void* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(forward)(p, x, weights, bias, y, scratch);
}

void lanes_convolution_data(const LanesConvolution& p, const void* dy, const void* weights,
                            void* dx, float* scratch) {
  HWY_DYNAMIC_DISPATCH(data)(p, dy, weights, dx, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
