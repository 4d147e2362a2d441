#include "lockstep/engine/kernels/cpu/lanes_convolution.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/lanes_layout.h"
#include "lockstep/engine/kernels/cpu/lanes_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/lanes_convolution.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Results that a tile keeps in registers: filters x columns of vectors.
#if HWY_TARGET <= HWY_AVX3
constexpr int kMostFilters = 6;
#else
constexpr int kMostFilters = 2;
#endif
constexpr int kColumns = 4;
// Channels after which results go back to memory, so that what is read again stays in the caches.
constexpr int64_t kChannelBlock = 16;

using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;

// The convolution that forward and data have in common: `in` channels to `out`.
struct Plane {
  int64_t in, out, rows, columns, n;
  int64_t row() const { return columns * n; }
  int64_t size() const { return rows * columns * n; }
};

// Adds to `filters` x `columns` results of one row what some channels and some rows of the window
// give. left, right: the first (last) column has no neighbour. Weights: channels x 3 x 3 x filters.
template <int filters, int columns, bool left, bool right>
HWY_INLINE void tile(const Plane& p, const float* x, const float* weights, int64_t of,
                     int64_t channels, int64_t first_row, int64_t end_row, float* y) {
  const D d;
  V sums[filters][columns];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < columns; ++c) sums[f][c] = hn::Load(d, y + f * p.size() + c * p.n);
  }
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t r = first_row; r < end_row; ++r) {
      const float* from = x + channel * p.size() + (r - 1) * p.row();
      const float* w = weights + (channel * 9 + r * 3) * of;
      for (int k = 0; k < 3; ++k) {
        V in[columns];
        for (int c = 0; c < columns; ++c) {
          const bool outside = (left && c + k == 0) || (right && c + k == columns + 1);
          in[c] = outside ? hn::Zero(d) : hn::Load(d, from + (c + k - 1) * p.n);
        }
        for (int f = 0; f < filters; ++f) {
          const V weight = hn::Set(d, w[k * of + f]);
          for (int c = 0; c < columns; ++c) {
            if ((left && c + k == 0) || (right && c + k == columns + 1)) continue;
            sums[f][c] = hn::MulAdd(weight, in[c], sums[f][c]);
          }
        }
      }
    }
  }
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < columns; ++c) hn::Store(sums[f][c], d, y + f * p.size() + c * p.n);
  }
}

template <int filters>
void row_of_tiles(const Plane& p, const float* x, const float* weights, int64_t of,
                  int64_t channels, int64_t first_row, int64_t end_row, float* y) {
  int64_t c = 0;
  const auto at = [&](auto how) { how(x + c * p.n, y + c * p.n); };
  for (; c + kColumns <= p.columns; c += kColumns) {
    const bool left = c == 0, right = c + kColumns == p.columns;
    at([&](const float* from, float* to) {
      if (left && right) {
        tile<filters, kColumns, true, true>(p, from, weights, of, channels, first_row, end_row, to);
      } else if (left) {
        tile<filters, kColumns, true, false>(p, from, weights, of, channels, first_row, end_row,
                                             to);
      } else if (right) {
        tile<filters, kColumns, false, true>(p, from, weights, of, channels, first_row, end_row,
                                             to);
      } else {
        tile<filters, kColumns, false, false>(p, from, weights, of, channels, first_row, end_row,
                                              to);
      }
    });
  }
  for (; c < p.columns; ++c) {
    const bool left = c == 0, right = c + 1 == p.columns;
    at([&](const float* from, float* to) {
      if (left && right) {
        tile<filters, 1, true, true>(p, from, weights, of, channels, first_row, end_row, to);
      } else if (left) {
        tile<filters, 1, true, false>(p, from, weights, of, channels, first_row, end_row, to);
      } else if (right) {
        tile<filters, 1, false, true>(p, from, weights, of, channels, first_row, end_row, to);
      } else {
        tile<filters, 1, false, false>(p, from, weights, of, channels, first_row, end_row, to);
      }
    });
  }
}

using RowOfTiles = void (*)(const Plane&, const float*, const float*, int64_t, int64_t, int64_t,
                            int64_t, float*);
#if HWY_TARGET <= HWY_AVX3
constexpr RowOfTiles kRows[] = {row_of_tiles<1>, row_of_tiles<2>, row_of_tiles<3>,
                                row_of_tiles<4>, row_of_tiles<5>, row_of_tiles<6>};
#else
constexpr RowOfTiles kRows[] = {row_of_tiles<1>, row_of_tiles<2>};
#endif

void convolve(const Plane& p, const float* x, const float* weights, const float* bias, float* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t f = 0; f < p.out; ++f) {
    std::fill_n(y + f * p.size(), p.size(), bias ? bias[f] : 0.0f);
  }
  for (int64_t channel = 0; channel < p.in; channel += kChannelBlock) {
    const int64_t channels = std::min(kChannelBlock, p.in - channel);
    for (int64_t row = 0; row < p.rows; ++row) {
      const int64_t first = row == 0 ? 1 : 0, end = row + 1 == p.rows ? 2 : 3;
      for (int64_t t = 0; t < weight_tiles(p.out); ++t) {
        const int64_t begin = weight_tile_begin(p.out, t),
                      of = weight_tile_begin(p.out, t + 1) - begin;
        const float* const w = weights + (begin * p.in + channel * of) * 9;
        for (int64_t f = 0; f < of; f += kMostFilters) {
          const int64_t filters = std::min<int64_t>(kMostFilters, of - f);
          for (int64_t lane = 0; lane < p.n; lane += lanes) {
            kRows[filters - 1](p, x + channel * p.size() + row * p.row() + lane, w + f, of,
                               channels, first, end,
                               y + (begin + f) * p.size() + row * p.row() + lane);
          }
        }
      }
    }
  }
}

void forward(const LanesConvolution& q, const float* x, const float* weights, const float* bias,
             float* y) {
  convolve({q.channels, q.filters, q.rows, q.columns, q.n}, x, weights, bias, y);
}

// The same convolution the other way round.
void data(const LanesConvolution& q, const float* dy, const float* weights, float* dx) {
  convolve({q.filters, q.channels, q.rows, q.columns, q.n}, dy, weights, nullptr, dx);
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
constexpr int64_t kFilterBlock = LanesConvolution::kFilterBlock;
constexpr int64_t kGradientBlock = LanesConvolution::kChannelBlock;

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
template <int filters, int channels>
HWY_INLINE void gradient_tile(const Plane& p, const float* x, const float* dy, int64_t rows,
                              int64_t lane, const Gradient& to) {
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
    const float* from = x + row * p.row();
    const float* diff = dy + row * p.row();
    V window[channels][3];
    for (int c = 0; c < channels; ++c) {
      window[c][0] = hn::Zero(d);
      window[c][1] = hn::Load(d, from + c * p.size());
    }
    for (int64_t column = 0; column < p.columns; ++column, from += p.n, diff += p.n) {
      const bool last = column + 1 == p.columns;
      for (int c = 0; c < channels; ++c) {
        window[c][2] = last ? hn::Zero(d) : hn::Load(d, from + c * p.size() + p.n);
      }
      for (int f = 0; f < filters; ++f) {
        const V g = hn::Load(d, diff + f * p.size());
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

// Those of some channels.
template <int filters>
void gradient_channels(const Plane& p, const float* x, const float* dy, int64_t rows, int64_t lane,
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
void gradient_rows(const Plane& p, const float* x, const float* dy, int64_t top, int64_t bottom,
                   int64_t filters, const Gradient& to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t r = 0; r < 3; ++r) {
    // Rows of dy whose neighbour r - 1 rows below lies in the image; none where there is one row.
    const int64_t first = std::max(top, 1 - r), last = std::min(bottom, p.rows + 1 - r);
    const int64_t rows = std::max<int64_t>(0, last - first);
    const float* const from = rows > 0 ? x + (first + r - 1) * p.row() : x;
    const float* const diff = rows > 0 ? dy + first * p.row() : dy;
    for (int64_t lane = 0; lane < p.n; lane += lanes) {
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

void weights(const LanesConvolution& q, const float* x, const float* dy, float* dweights,
             float* dbias, float* scratch) {
  const Plane p{q.channels, q.filters, q.rows, q.columns, q.n};
  const int64_t band = std::max<int64_t>(1, kPositions / p.columns);
  for (int64_t block = 0; block < p.out; block += kFilterBlock) {
    const int64_t all = std::min(kFilterBlock, p.out - block);
    for (int64_t c = 0; c < p.in; c += kGradientBlock) {
      const int64_t channels = std::min(kGradientBlock, p.in - c);
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
  if (!dbias) return;
  for (int64_t f = 0; f < q.filters; ++f) {
    HWY_ALIGN float sums[kLanes] = {};
    // Row by row, for the sake of rounding.
    for (int64_t row = 0; row < p.rows; ++row) {
      const float* const from = dy + f * p.size() + row * p.row();
      float own[kLanes] = {};
      for (int64_t i = 0; i < p.row(); i += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) own[lane] += from[i + lane];
      }
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += own[lane];
    }
    dbias[f] = sum_of_lanes(sums);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(forward);
HWY_EXPORT(data);
HWY_EXPORT(weights);

size_t LanesConvolution::weights_scratch() const {
  const int64_t windows = std::min(channels, kChannelBlock) * std::min(filters, kFilterBlock);
  return static_cast<size_t>(windows * 9 * kLanes) * sizeof(float);
}

void lanes_convolution(const LanesConvolution& p, const float* x, const float* weights,
                       const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(forward)(p, x, weights, bias, y);
}

void lanes_convolution_data(const LanesConvolution& p, const float* dy, const float* weights,
                            float* dx) {
  HWY_DYNAMIC_DISPATCH(data)(p, dy, weights, dx);
}

void lanes_convolution_weights(const LanesConvolution& p, const float* x, const float* dy,
                               float* dweights, float* dbias, float* scratch) {
  HWY_DYNAMIC_DISPATCH(weights)(p, x, dy, dweights, dbias, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
