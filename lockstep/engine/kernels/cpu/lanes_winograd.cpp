#include "lockstep/engine/kernels/cpu/lanes_winograd.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/lanes_layout.h"
#include "lockstep/engine/kernels/cpu/lanes_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/lanes_winograd.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/lanes_winograd_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// One axis of A^T m: six products to four results.
HWY_INLINE void output_axis(const Points& p, const V (&m)[kAround], V (&out)[kTile]) {
  const V sum_a = hn::Add(m[1], m[2]), difference_a = hn::Sub(m[1], m[2]);
  const V sum_b = hn::Add(m[3], m[4]), difference_b = hn::Sub(m[3], m[4]);
  out[0] = hn::Add(m[0], hn::Add(sum_a, sum_b));
  out[1] = hn::MulAdd(p.a, difference_a, hn::Mul(p.b, difference_b));
  out[2] = hn::MulAdd(p.a2, sum_a, hn::Mul(p.b2, sum_b));
  out[3] = hn::Add(m[5], hn::MulAdd(p.a3, difference_a, hn::Mul(p.b3, difference_b)));
}

// A^T m A of the products of a result's channel, 36 vectors `step` apart, plus the bias.
HWY_INLINE void transform_output(const Tiles& t, const Unit& u, const float* from, int64_t step,
                                 float bias, float* plane) {
  const D d;
  const Points points;
  V half[kAround][kTile];
  for (int c = 0; c < kAround; ++c) {
    V m[kAround];
    for (int r = 0; r < kAround; ++r) m[r] = hn::Load(d, from + (kAround * r + c) * step);
    output_axis(points, m, half[c]);
  }
  const V b = hn::Set(d, bias);
  const int64_t columns = std::min<int64_t>(kTile, t.columns - u.column);
  for (int r = 0; r < kTile && u.row + r < t.rows; ++r) {
    const V m[kAround] = {half[0][r], half[1][r], half[2][r], half[3][r], half[4][r], half[5][r]};
    V y[kTile];
    output_axis(points, m, y);
    float* const to = plane + (u.row + r) * t.row() + u.column * t.n + u.lane;
    if (columns == kTile) {
      for (int c = 0; c < kTile; ++c) hn::Store(hn::Add(b, y[c]), d, to + c * t.n);
    } else {
      for (int c = 0; c < columns; ++c) hn::Store(hn::Add(b, y[c]), d, to + c * t.n);
    }
  }
}

// Sums over channels for `filters` results and kWinogradUnits units. Weights: channels x `of`.
template <int filters>
HWY_INLINE void multiply(const float* v, const float* weights, int64_t of, int64_t channels,
                         float* m) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[filters][kWinogradUnits];
  for (int f = 0; f < filters; ++f) {
    for (int u = 0; u < kWinogradUnits; ++u) sums[f][u] = hn::Zero(d);
  }
  for (int64_t c = 0; c < channels; ++c, v += kWinogradUnits * lanes, weights += of) {
    V in[kWinogradUnits];
    for (int u = 0; u < kWinogradUnits; ++u) in[u] = hn::Load(d, v + u * lanes);
    for (int f = 0; f < filters; ++f) {
      const V w = hn::Set(d, weights[f]);
      for (int u = 0; u < kWinogradUnits; ++u) sums[f][u] = hn::MulAdd(w, in[u], sums[f][u]);
    }
  }
  for (int f = 0; f < filters; ++f) {
    for (int u = 0; u < kWinogradUnits; ++u)
      hn::Store(sums[f][u], d, m + (f * kWinogradUnits + u) * lanes);
  }
}

using Multiply = void (*)(const float*, const float*, int64_t, int64_t, float*);
#if HWY_TARGET <= HWY_AVX3
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<3>,
                                  multiply<4>, multiply<5>, multiply<6>};
#else
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>};
#endif

void winograd(const LanesWinograd& p, const float* x, const float* weights, const float* bias,
              float* y, float* scratch) {
  const Tiles tiles{p.n, p.rows, p.columns};
  const int64_t lanes = tiles.lanes(), plane = tiles.plane(), each = kWinogradUnits * lanes;
  // Transformed elements: 36 x in x kWinogradUnits; products: 36 x results x kWinogradUnits.
  const int64_t v_all = p.around_all(lanes), m_all = p.products_all(lanes);
  float* const v = scratch;
  float* const m = scratch + kWinogradPlaces * v_all;
  for (int64_t first = 0; first < tiles.units(); first += kWinogradUnits) {
    // Units that fill up a group are computed from what is there, and not used.
    const int64_t count = std::min<int64_t>(kWinogradUnits, tiles.units() - first);
    for (int64_t c = 0; c < p.in; ++c) {
      for (int64_t u = 0; u < count; ++u) {
        const Unit unit(tiles, first + u);
        if (c + kAhead < p.in) prefetch_input(tiles, unit, x + (c + kAhead) * plane);
        transform_input(tiles, unit, x + c * plane, v + c * each + u * lanes, v_all);
      }
    }
    for (int64_t tile = 0; tile < weight_tiles(p.out); tile += kWinogradTilesOfWeights) {
      const int64_t end_tile = std::min(tile + kWinogradTilesOfWeights, weight_tiles(p.out));
      const int64_t begin = weight_tile_begin(p.out, tile),
                    end = weight_tile_begin(p.out, end_tile);
      for (int64_t place = 0; place < kWinogradPlaces; ++place) {
        const float* const w = weights + place * p.in * p.out;
        for (int64_t k = tile; k < end_tile; ++k) {
          const int64_t of_tile = weight_tile_begin(p.out, k),
                        of = weight_tile_begin(p.out, k + 1) - of_tile;
          for (int64_t f = 0; f < of; f += kMostFilters) {
            const int64_t filters = std::min<int64_t>(kMostFilters, of - f);
            kMultiply[filters - 1](v + place * v_all, w + of_tile * p.in + f, of, p.in,
                                   m + place * m_all + (of_tile + f - begin) * each);
          }
        }
      }
      for (int64_t f = begin; f < end; ++f) {
        for (int64_t u = 0; u < count; ++u) {
          transform_output(tiles, Unit(tiles, first + u), m + (f - begin) * each + u * lanes, m_all,
                           bias ? bias[f] : 0.0f, y + f * plane);
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

size_t LanesWinograd::scratch() const {
  return static_cast<size_t>(kWinogradPlaces * (around_all(kLanes) + products_all(kLanes))) *
         sizeof(float);
}

void lanes_winograd(const LanesWinograd& p, const float* x, const float* weights, const float* bias,
                    float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(winograd)(p, x, weights, bias, y, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
