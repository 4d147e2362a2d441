#include "lockstep/engine/kernels/cpu/lanes_convolution.h"

#include <algorithm>
#include <type_traits>

#include "lockstep/engine/kernels/cpu/lanes_weights.h"
#include "lockstep/engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/lanes_convolution.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/lanes_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Columns of a tile's results in registers.
constexpr int kColumns = 4;

// The convolution that forward and data have in common: `in` channels to `out`.
struct Plane {
  int64_t in, out, rows, columns, n;
  int64_t row() const { return columns * n; }
  int64_t size() const { return rows * columns * n; }
};

// Three rows of some channels (of bfloat16 in pairs), side by side and between zeros: channels x
// (columns + 2) vectors each. In the images themselves, rows and channels are often powers of two
// apart, and caches have few places for those.
template <class T>
class Rows {
 public:
  Rows(const Plane& p, int64_t channels, float* memory)
      : p_(p),
        channels_(channels),
        steps_((channels + kTogether<T> - 1) / kTogether<T>),
        memory_(memory),
        lanes_(static_cast<int64_t>(hn::Lanes(D()))) {
    const D d;
    for (int64_t c = 0; c < 3 * steps_; ++c) {
      hn::Store(hn::Zero(d), d, memory + c * channel());
      hn::Store(hn::Zero(d), d, memory + (c + 1) * channel() - lanes_);
    }
  }
  int64_t channel() const { return (p_.columns + 2) * lanes_; }
  // Rows -1 and p.rows are zeros.
  const float* row(int64_t row) const { return memory_ + (row + 1) % 3 * steps_ * channel(); }
  int64_t steps() const { return steps_; }
  void fetch(const T* x, int64_t row) {
    float* to = memory_ + (row + 1) % 3 * steps_ * channel() + lanes_;
    for (int64_t c = 0; c < channels_; c += kTogether<T>, to += channel()) {
      if (row < 0 || row >= p_.rows) {
        std::fill_n(to, p_.columns * lanes_, 0.0f);
        continue;
      }
      const T* const from = x + c * p_.size() + row * p_.row();
      for (int64_t column = 0; column < p_.columns; ++column) {
        V v = load_images(from + column * p_.n);
        if constexpr (kTogether<T> == 2) {
          const bool two = c + 1 < channels_;
          v = pairs_of(v, two ? load_images(from + p_.size() + column * p_.n) : hn::Zero(D()));
        }
        store_images(v, to + column * lanes_);
      }
    }
  }

 private:
  const Plane& p_;
  int64_t channels_, steps_;
  float* memory_;
  int64_t lanes_;
};

// Adds to `filters` x `columns` results of one row what some channels give; or, with `bias` (by
// filter), begins them. rows: where the windows of the first column begin, in three rows. Weights:
// steps x 3 x 3 x `of`.
template <int filters, int columns, class T>
HWY_INLINE void tile(const Plane& p, const float* const (&rows)[3], int64_t channel_step,
                     int64_t steps, const float* weights, int64_t of, const float* bias, T* y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[filters][columns];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < columns; ++c) {
      sums[f][c] = bias ? hn::Set(d, bias[f]) : load_images(y + f * p.size() + c * p.n);
    }
  }
  for (int64_t step = 0; step < steps; ++step) {
    for (int r = 0; r < 3; ++r, weights += 3 * of) {
      const float* const from = rows[r] + step * channel_step;
      V in[columns + 2];
      for (int c = 0; c < columns + 2; ++c) in[c] = hn::Load(d, from + c * lanes);
      for (int k = 0; k < 3; ++k) {
        for (int f = 0; f < filters; ++f) {
          const V weight = hn::Set(d, weights[k * of + f]);
          for (int c = 0; c < columns; ++c) {
            sums[f][c] = multiply_add<T>(weight, in[c + k], sums[f][c]);
          }
        }
      }
    }
  }
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < columns; ++c) store_images(sums[f][c], y + f * p.size() + c * p.n);
  }
}

template <class T, int filters>
void tile_of_columns(const Plane& p, const float* const (&rows)[3], int64_t channel_step,
                     int64_t steps, const float* weights, int64_t of, const float* bias,
                     int64_t columns, T* y) {
  if (columns == 4) {
    tile<filters, 4>(p, rows, channel_step, steps, weights, of, bias, y);
  } else if (columns == 3) {
    tile<filters, 3>(p, rows, channel_step, steps, weights, of, bias, y);
  } else if (columns == 2) {
    tile<filters, 2>(p, rows, channel_step, steps, weights, of, bias, y);
  } else {
    tile<filters, 1>(p, rows, channel_step, steps, weights, of, bias, y);
  }
}

template <class T>
using TileOfColumns = void (*)(const Plane&, const float* const (&)[3], int64_t, int64_t,
                               const float*, int64_t, const float*, int64_t, T*);
#if HWY_TARGET <= HWY_AVX3
template <class T>
constexpr TileOfColumns<T> kTiles[] = {tile_of_columns<T, 1>, tile_of_columns<T, 2>,
                                       tile_of_columns<T, 3>, tile_of_columns<T, 4>,
                                       tile_of_columns<T, 5>, tile_of_columns<T, 6>};
#else
template <class T>
constexpr TileOfColumns<T> kTiles[] = {tile_of_columns<T, 1>, tile_of_columns<T, 2>};
#endif

// The results of a row, from the channels of `rows`, whose first is `channel`.
template <class T>
void convolve_row(const Plane& p, const Rows<T>& rows, int64_t row, int64_t channel,
                  const float* weights, const float* bias, T* y) {
  const int64_t all = (p.in + kTogether<T> - 1) / kTogether<T>;
  constexpr float kNone[kMostFilters] = {};
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t column = 0; column < p.columns; column += kColumns) {
    const int64_t columns = std::min<int64_t>(kColumns, p.columns - column), at = column * lanes;
    const float* const from[3] = {rows.row(row - 1) + at, rows.row(row) + at,
                                  rows.row(row + 1) + at};
    for (int64_t t = 0; t < weight_tiles(p.out); ++t) {
      const int64_t begin = weight_tile_begin(p.out, t),
                    of = weight_tile_begin(p.out, t + 1) - begin;
      for (int64_t f = 0; f < of; f += kMostFilters) {
        const int64_t filters = std::min<int64_t>(kMostFilters, of - f);
        const float* const begin_with = channel > 0 ? nullptr : bias ? bias + begin + f : kNone;
        T* const to = y + (begin + f) * p.size() + row * p.row() + column * p.n;
        // Results far apart are fetched before they can be written.
        for (int64_t c = column + kColumns; c < std::min(column + 2 * kColumns, p.columns); ++c) {
          for (int64_t k = 0; k < filters; ++k) {
            hwy::Prefetch(to + k * p.size() + (c - column) * p.n);
          }
        }
        kTiles<T>[filters - 1](p, from, rows.channel(), rows.steps(),
                               weights + (begin * all + channel / kTogether<T> * of) * 9 + f, of,
                               begin_with, columns, to);
      }
    }
  }
}

template <class T>
void convolve(const LanesConvolution& q, const Plane& p, const T* x, const float* weights,
              const float* bias, T* y, float* scratch) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t at_once = q.at_once(p.in);
  for (int64_t lane = 0; lane < p.n; lane += lanes) {
    for (int64_t channel = 0; channel < p.in; channel += at_once) {
      const int64_t channels = std::min(at_once, p.in - channel);
      const T* const from = x + channel * p.size() + lane;
      Rows<T> rows(p, channels, scratch);
      rows.fetch(from, -1);
      rows.fetch(from, 0);
      for (int64_t row = 0; row < p.rows; ++row) {
        rows.fetch(from, row + 1);
        convolve_row(p, rows, row, channel, weights, bias, y + lane);
      }
    }
  }
}

void forward(const LanesConvolution& q, const void* x, const void* weights, const float* bias,
             void* y, float* scratch) {
  with_elements(q.dtype, [&]<class T>(T*) {
    convolve(q, {q.channels, q.filters, q.rows, q.columns, q.n}, static_cast<const T*>(x),
             static_cast<const float*>(weights), bias, static_cast<T*>(y), scratch);
  });
}

// The same convolution the other way round.
void data(const LanesConvolution& q, const void* dy, const void* weights, void* dx,
          float* scratch) {
  with_elements(q.dtype, [&]<class T>(T*) {
    convolve(q, {q.filters, q.channels, q.rows, q.columns, q.n}, static_cast<const T*>(dy),
             static_cast<const float*>(weights), nullptr, static_cast<T*>(dx), scratch);
  });
}

// ---- Gradients of weights ----

// Filters and channels whose products a tile sums in registers, for the three columns of the
// window.
#if HWY_TARGET <= HWY_AVX3
constexpr int kGradientFilters = 4, kGradientChannels = 2;
#else
constexpr int kGradientFilters = 2, kGradientChannels = 1;
#endif

// In a fixed order: halves are added until one is left.
HWY_INLINE float sum_of_lanes(const float* lanes) {
#if HWY_TARGET == HWY_SCALAR
  float s[kLanes];
  std::copy_n(lanes, kLanes, s);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) s[i] += s[i + half];
  }
  return s[0];
#else
  const hn::FixedTag<float, 4> d;
  auto s = hn::Add(hn::Add(hn::Load(d, lanes), hn::Load(d, lanes + 8)),
                   hn::Add(hn::Load(d, lanes + 4), hn::Load(d, lanes + 12)));
  s = hn::Add(s, hn::Shuffle1032(s));
  s = hn::Add(s, hn::Shuffle2301(s));
  return hn::GetLane(s);
#endif
}

// What is taken together: enough positions for sums to be worth fetching, and so few filters and
// channels that they, and the sums, stay in the second cache.
constexpr int64_t kPositions = 256;

// Where the sums of a block are kept between bands of rows: of each filter `channels` x 9 places of
// kLanes each.
struct Gradient {
  float* kept;
  int64_t channels;
  bool first;  // nothing is kept yet

  Gradient at(int64_t filter, int64_t channel, int64_t place) const {
    return {kept + ((filter * channels + channel) * 9 + place) * kLanes, channels, first};
  }
};

// The products of some rows for the three columns of the window.
template <int filters, int channels, class T>
HWY_INLINE void gradient_tile(const Plane& p, const T* x, const T* dy, int64_t rows, int64_t lane,
                              const Gradient& to) {
  const D d;
  V s[filters][channels][3];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < 3; ++k) {
        s[f][c][k] = to.first ? hn::Zero(d) : hn::Load(d, to.at(f, c, k).kept + lane);
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = x + row * p.row();
    const T* diff = dy + row * p.row();
    V window[channels][3];
    for (int c = 0; c < channels; ++c) {
      window[c][0] = hn::Zero(d);
      window[c][1] = load_images(from + c * p.size());
    }
    for (int64_t column = 0; column < p.columns; ++column, from += p.n, diff += p.n) {
      const bool last = column + 1 == p.columns;
      for (int c = 0; c < channels; ++c) {
        window[c][2] = last ? hn::Zero(d) : load_images(from + c * p.size() + p.n);
      }
      for (int f = 0; f < filters; ++f) {
        const V g = load_images(diff + f * p.size());
        for (int c = 0; c < channels; ++c) {
          for (int k = 0; k < 3; ++k) s[f][c][k] = hn::MulAdd(g, window[c][k], s[f][c][k]);
        }
      }
      for (int c = 0; c < channels; ++c) {
        window[c][0] = window[c][1];
        window[c][1] = window[c][2];
      }
    }
  }
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < 3; ++k) hn::Store(s[f][c][k], d, to.at(f, c, k).kept + lane);
    }
  }
}

#if HWY_TARGET <= HWY_AVX3
// Of bfloat16 a vector takes two images, or columns, of each lane, wherever they lie in a row: all
// are added up. Elements before or behind a row count as zeros.
constexpr int64_t kPairs = 2 * kLanes;

// Which of kPairs elements from `at` on lie in [begin, end).
HWY_INLINE __mmask32 within(int64_t at, int64_t begin, int64_t end) {
  const auto below = [&](int64_t to) {
    return to <= at ? 0 : to >= at + kPairs ? ~uint32_t{0} : (uint32_t{1} << (to - at)) - 1;
  };
  return below(end) & ~below(begin);
}
HWY_INLINE V load_pairs(const BFloat16* from, __mmask32 mask) {
  return V{_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, from))};
}
HWY_INLINE V load_pairs(const BFloat16* from) {
  return V{_mm512_loadu_ps(reinterpret_cast<const float*>(from))};
}

template <int filters, int channels>
HWY_INLINE void gradient_tile(const Plane& p, const BFloat16* x, const BFloat16* dy, int64_t rows,
                              int64_t, const Gradient& to) {
  V s[filters][channels][3];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < 3; ++k) {
        s[f][c][k] = to.first ? hn::Zero(D()) : hn::Load(D(), to.at(f, c, k).kept);
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row, x += p.row(), dy += p.row()) {
    const auto take = [&](int64_t at, auto edge) {
      V window[channels][3];
      for (int c = 0; c < channels; ++c) {
        for (int k = 0; k < 3; ++k) {
          const int64_t shift = (k - 1) * p.n;
          const BFloat16* const from = x + c * p.size() + at + shift;
          // What lies beyond the row of dy must not be read as something that is not a number.
          window[c][k] = edge ? load_pairs(from, within(at, std::max<int64_t>(0, -shift),
                                                        std::min(p.row(), p.row() - shift)))
                              : load_pairs(from);
        }
      }
      for (int f = 0; f < filters; ++f) {
        const BFloat16* const from = dy + f * p.size() + at;
        const V g = edge ? load_pairs(from, within(at, 0, p.row())) : load_pairs(from);
        for (int c = 0; c < channels; ++c) {
          for (int k = 0; k < 3; ++k) s[f][c][k] = add_products(g, window[c][k], s[f][c][k]);
        }
      }
    };
    const int64_t inner = std::min((p.n + kPairs - 1) / kPairs * kPairs, p.row());
    int64_t at = 0;
    for (; at < inner; at += kPairs) take(at, std::true_type());
    for (; at + kPairs + p.n <= p.row(); at += kPairs) take(at, std::false_type());
    for (; at < p.row(); at += kPairs) take(at, std::true_type());
  }
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < 3; ++k) hn::Store(s[f][c][k], D(), to.at(f, c, k).kept);
    }
  }
}
#endif

// Those of some channels.
template <int filters, class T>
void gradient_channels(const Plane& p, const T* x, const T* dy, int64_t rows, int64_t lane,
                       const Gradient& to) {
  int64_t c = 0;
  for (; c + kGradientChannels <= to.channels; c += kGradientChannels) {
    gradient_tile<filters, kGradientChannels>(p, x + c * p.size(), dy, rows, lane, to.at(0, c, 0));
  }
  for (; c < to.channels; ++c) {
    gradient_tile<filters, 1>(p, x + c * p.size(), dy, rows, lane, to.at(0, c, 0));
  }
}

// Rows [top, bottom) for some filters and channels, of which `to` has the sums.
template <class T>
void gradient_rows(const Plane& p, const T* x, const T* dy, int64_t top, int64_t bottom,
                   int64_t filters, const Gradient& to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t r = 0; r < 3; ++r) {
    // Rows of dy whose neighbour r - 1 rows below lies in the image; none where there is one row.
    const int64_t first = std::max(top, 1 - r), last = std::min(bottom, p.rows + 1 - r);
    const int64_t rows = std::max<int64_t>(0, last - first);
    const T* const from = rows > 0 ? x + (first + r - 1) * p.row() : x;
    const T* const diff = rows > 0 ? dy + first * p.row() : dy;
    // All of a row at a time, where that is possible.
    const bool whole = HWY_TARGET <= HWY_AVX3 && kTogether<T> == 2;
    for (int64_t lane = 0; lane < (whole ? 1 : p.n); lane += lanes) {
      // Images beyond the sixteenth are added to the sums of the first.
      Gradient own = to.at(0, 0, 3 * r);
      own.first = to.first && lane < kLanes;
      if (filters == kGradientFilters) {
        gradient_channels<kGradientFilters>(p, from + lane, diff + lane, rows, lane % kLanes, own);
        continue;
      }
      for (int64_t f = 0; f < filters; ++f) {
        gradient_channels<1>(p, from + lane, diff + f * p.size() + lane, rows, lane % kLanes,
                             own.at(f, 0, 0));
      }
    }
  }
}

template <class T>
void weights(const LanesConvolution& q, const T* x, const T* dy, float* dweights, float* scratch) {
  const Plane p{q.channels, q.filters, q.rows, q.columns, q.n};
  const int64_t band = std::max<int64_t>(1, kPositions / p.columns);
  for (int64_t block = 0; block < p.out; block += q.kFilterBlock) {
    const int64_t all = std::min(q.kFilterBlock, p.out - block);
    for (int64_t c = 0; c < p.in; c += q.kChannelBlock) {
      const int64_t channels = std::min(q.kChannelBlock, p.in - c);
      for (int64_t top = 0; top < p.rows; top += band) {
        const int64_t bottom = std::min(top + band, p.rows);
        const Gradient sums{scratch, channels, top == 0};
        for (int64_t f = 0; f < all; f += kGradientFilters) {
          const int64_t filters = std::min<int64_t>(kGradientFilters, all - f);
          gradient_rows(p, x + c * p.size(), dy + (block + f) * p.size(), top, bottom, filters,
                        sums.at(f, 0, 0));
        }
      }
      for (int64_t f = 0; f < all; ++f) {
        float* const to = dweights + ((block + f) * p.in + c) * 9;
        const float* const from = scratch + f * channels * 9 * kLanes;
        for (int64_t i = 0; i < channels * 9; ++i) to[i] = sum_of_lanes(from + i * kLanes);
      }
    }
  }
}

void weights_of(const LanesConvolution& q, const void* x, const void* dy, float* dweights,
                float* scratch) {
  with_elements(q.dtype, [&]<class T>(T*) {
    weights(q, static_cast<const T*>(x), static_cast<const T*>(dy), dweights, scratch);
  });
}

template <class T>
void bias(const LanesConvolution& q, const T* dy, float* dbias) {
  const Plane p{q.channels, q.filters, q.rows, q.columns, q.n};
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t f = 0; f < q.filters; ++f) {
    HWY_ALIGN float sums[kLanes];
    for (int64_t lane = 0; lane < kLanes; lane += lanes) {
      V sum = hn::Zero(d);
      // Row by row, for the sake of rounding.
      for (int64_t row = 0; row < p.rows; ++row) {
        const T* const from = dy + f * p.size() + row * p.row() + lane;
        V own = hn::Zero(d);
        for (int64_t i = 0; i < p.row(); i += kLanes) own = hn::Add(own, load_images(from + i));
        sum = hn::Add(sum, own);
      }
      hn::Store(sum, d, sums + lane);
    }
    dbias[f] = sum_of_lanes(sums);
  }
}

void bias_of(const LanesConvolution& q, const void* dy, float* dbias) {
  with_elements(q.dtype, [&]<class T>(T*) { bias(q, static_cast<const T*>(dy), dbias); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(forward);
HWY_EXPORT(data);
HWY_EXPORT(weights_of);
HWY_EXPORT(bias_of);

size_t LanesConvolution::scratch(bool back) const {
  const int64_t in = at_once(back ? filters : channels);
  return static_cast<size_t>(3 * in * (columns + 2) * kLanes) * sizeof(float);
}

size_t LanesConvolution::weights_scratch() const {
  const int64_t windows = std::min(channels, kChannelBlock) * std::min(filters, kFilterBlock);
  return static_cast<size_t>(windows * 9 * kLanes) * sizeof(float);
}

void lanes_convolution(const LanesConvolution& p, const void* x, const void* weights,
                       const float* bias, void* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(forward)(p, x, weights, bias, y, scratch);
}

void lanes_convolution_data(const LanesConvolution& p, const void* dy, const void* weights,
                            void* dx, float* scratch) {
  HWY_DYNAMIC_DISPATCH(data)(p, dy, weights, dx, scratch);
}

void lanes_convolution_weights(const LanesConvolution& p, const void* x, const void* dy,
                               float* dweights, float* scratch) {
  HWY_DYNAMIC_DISPATCH(weights_of)(p, x, dy, dweights, scratch);
}

void lanes_convolution_bias(const LanesConvolution& p, const void* dy, float* dbias) {
  HWY_DYNAMIC_DISPATCH(bias_of)(p, dy, dbias);
}

}  // namespace lockstep::kernels::cpu
#endif
