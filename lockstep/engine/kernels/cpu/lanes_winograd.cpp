#include "lockstep/engine/kernels/cpu/lanes_winograd.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/lanes_layout.h"
#include "lockstep/engine/kernels/cpu/lanes_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/lanes_winograd.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;

constexpr int kTiles = 4;  // in registers, of each result
// Results of a tile of products. The layout of weights is made for 6; fewer registers take them in
// pieces.
#if HWY_TARGET <= HWY_AVX3
constexpr int kAtOnce = 6;
#else
constexpr int kAtOnce = 2;
#endif

// A tile of 2 x 2 results, and the 4 x 4 elements around it.
struct Tile {
  int64_t row, column;  // of the first result
};
Tile tile_of(const LanesWinograd& p, int64_t number) {
  const int64_t across = (p.columns + 1) / 2;
  return {number / across * 2, number % across * 2};
}
int64_t tiles_of(const LanesWinograd& p) { return (p.rows + 1) / 2 * ((p.columns + 1) / 2); }

// One axis of B^T d: 4 elements to 4.
HWY_INLINE void input_axis(const V& a, const V& b, const V& c, const V& d, V& p, V& q, V& r, V& s) {
  p = hn::Sub(a, c);
  q = hn::Add(b, c);
  r = hn::Sub(c, b);
  s = hn::Sub(b, d);
}

// B^T d B of a channel's elements around a tile, 16 vectors `step` apart.
void transform_input(const LanesWinograd& p, const Tile& tile, const float* plane, float* to,
                     int64_t step) {
  const D d;
  V e[4][4], half[4][4];
  const int64_t row = tile.row - 1, column = tile.column - 1;
  if (row >= 0 && column >= 0 && row + 4 <= p.rows && column + 4 <= p.columns) {
    const float* from = plane + (row * p.columns + column) * p.n;
    for (int r = 0; r < 4; ++r, from += p.columns * p.n) {
      for (int c = 0; c < 4; ++c) e[r][c] = hn::Load(d, from + c * p.n);
    }
  } else {
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 4; ++c) {
        const int64_t y = row + r, x = column + c;
        const bool inside = y >= 0 && y < p.rows && x >= 0 && x < p.columns;
        e[r][c] = inside ? hn::Load(d, plane + (y * p.columns + x) * p.n) : hn::Zero(d);
      }
    }
  }
  for (int c = 0; c < 4; ++c) {
    input_axis(e[0][c], e[1][c], e[2][c], e[3][c], half[0][c], half[1][c], half[2][c], half[3][c]);
  }
  for (int r = 0; r < 4; ++r) {
    V v[4];
    input_axis(half[r][0], half[r][1], half[r][2], half[r][3], v[0], v[1], v[2], v[3]);
    for (int c = 0; c < 4; ++c) hn::Store(v[c], d, to + (4 * r + c) * step);
  }
}

// A^T m A of the products of a result's channel, 16 vectors `step` apart, plus the bias.
void transform_output(const LanesWinograd& p, const Tile& tile, const float* from, int64_t step,
                      float bias, float* plane) {
  const D d;
  V half[2][4];
  for (int c = 0; c < 4; ++c) {
    const V m0 = hn::Load(d, from + c * step), m1 = hn::Load(d, from + (4 + c) * step),
            m2 = hn::Load(d, from + (8 + c) * step), m3 = hn::Load(d, from + (12 + c) * step);
    half[0][c] = hn::Add(m0, hn::Add(m1, m2));
    half[1][c] = hn::Sub(hn::Sub(m1, m2), m3);
  }
  const V b = hn::Set(d, bias);
  const bool wide = tile.column + 1 < p.columns;
  for (int r = 0; r < 2 && tile.row + r < p.rows; ++r) {
    float* const to = plane + ((tile.row + r) * p.columns + tile.column) * p.n;
    hn::Store(hn::Add(b, hn::Add(half[r][0], hn::Add(half[r][1], half[r][2]))), d, to);
    if (!wide) continue;
    hn::Store(hn::Add(b, hn::Sub(hn::Sub(half[r][1], half[r][2]), half[r][3])), d, to + p.n);
  }
}

// Sums over channels for `filters` results and kTiles tiles. Weights: channels x `of`.
template <int filters>
HWY_INLINE void multiply(const float* v, int64_t v_step, const float* weights, int64_t of,
                         int64_t channels, float* m, int64_t m_step) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[filters][kTiles];
  for (int f = 0; f < filters; ++f) {
    for (int t = 0; t < kTiles; ++t) sums[f][t] = hn::Zero(d);
  }
  for (int64_t c = 0; c < channels; ++c, v += v_step, weights += of) {
    V in[kTiles];
    for (int t = 0; t < kTiles; ++t) in[t] = hn::Load(d, v + t * lanes);
    for (int f = 0; f < filters; ++f) {
      const V w = hn::Set(d, weights[f]);
      for (int t = 0; t < kTiles; ++t) sums[f][t] = hn::MulAdd(w, in[t], sums[f][t]);
    }
  }
  for (int f = 0; f < filters; ++f) {
    for (int t = 0; t < kTiles; ++t) hn::Store(sums[f][t], d, m + f * m_step + t * lanes);
  }
}

using Multiply = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*, int64_t);
#if HWY_TARGET <= HWY_AVX3
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<3>,
                                  multiply<4>, multiply<5>, multiply<6>};
#else
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>};
#endif

void winograd(const LanesWinograd& p, const float* x, const float* weights, const float* bias,
              float* y, float* scratch) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t group = p.group(), tiles = tiles_of(p), plane = p.rows * p.columns * p.n;
  // Transformed elements: 16 x in x group; products: 16 x out x group.
  const int64_t v_step = group * lanes, v_all = p.in * v_step + LanesWinograd::kApart,
                m_all = p.out * v_step + LanesWinograd::kApart;
  float* const v = scratch;
  float* const m = scratch + 16 * v_all;
  for (int64_t lane = 0; lane < p.n; lane += lanes) {
    for (int64_t first = 0; first < tiles; first += group) {
      const int64_t count = std::min(group, tiles - first);
      for (int64_t c = 0; c < p.in; ++c) {
        for (int64_t t = 0; t < count; ++t) {
          transform_input(p, tile_of(p, first + t), x + c * plane + lane,
                          v + c * v_step + t * lanes, v_all);
        }
      }
      // Tiles that fill up a vector of tiles are computed from what is there, and not used.
      for (int64_t place = 0; place < 16; ++place) {
        const float* const w = weights + place * p.in * p.out;
        for (int64_t k = 0; k < weight_tiles(p.out); ++k) {
          const int64_t begin = weight_tile_begin(p.out, k), end = weight_tile_begin(p.out, k + 1);
          for (int64_t f = begin; f < end; f += kAtOnce) {
            const int64_t filters = std::min<int64_t>(kAtOnce, end - f);
            for (int64_t t = 0; t < count; t += kTiles) {
              kMultiply[filters - 1](v + place * v_all + t * lanes, v_step,
                                     w + begin * p.in + (f - begin), end - begin, p.in,
                                     m + place * m_all + f * v_step + t * lanes, v_step);
            }
          }
        }
      }
      for (int64_t f = 0; f < p.out; ++f) {
        for (int64_t t = 0; t < count; ++t) {
          transform_output(p, tile_of(p, first + t), m + f * v_step + t * lanes, m_all,
                           bias ? bias[f] : 0.0f, y + f * plane + lane);
        }
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(winograd);

// What is transformed at once stays in the second cache.
int64_t LanesWinograd::group() const {
  constexpr int64_t kBytes = 384 << 10, kMost = 16, kStep = 4;
  const int64_t each = 16 * (in + out) * kLanes * static_cast<int64_t>(sizeof(float));
  return std::clamp(kBytes / each / kStep * kStep, kStep, kMost);
}

size_t LanesWinograd::scratch() const {
  return static_cast<size_t>(16 * ((in + out) * group() * kLanes + 2 * kApart)) * sizeof(float);
}

void lanes_winograd(const LanesWinograd& p, const float* x, const float* weights, const float* bias,
                    float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(winograd)(p, x, weights, bias, y, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
