#include "lockstep/engine/kernels/cpu/batch_lanes/winograd.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/weights.h"
#include "lockstep/engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/batch_lanes/winograd.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/batch_lanes/winograd_tiles.h"

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

// A^T m A of the products of an output channel, 36 vectors `step` apart, plus the bias.
template <class T>
HWY_INLINE void transform_output(const Tiles& t, const Unit& u, const float* from, int64_t step,
                                 float bias, T* plane) {
  const D d;
  const Points points;
  V half[kAround][kTile];
  from = opaque(from);
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
    T* const to = plane + (u.row + r) * t.row() + u.column * t.n + u.lane;
    if (columns == kTile) {
      for (int c = 0; c < kTile; ++c) store_images(hn::Add(b, y[c]), to + c * t.n);
    } else {
      for (int c = 0; c < columns; ++c) store_images(hn::Add(b, y[c]), to + c * t.n);
    }
  }
}

// Sums over channels, or pairs of channels, for `filters` output channels and kWinogradUnits units.
// Weights: channels x `of`.
template <class T, int filters>
HWY_INLINE void multiply(const float* v, const float* weights, int64_t of, int64_t channels,
                         float* m) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[filters][kWinogradUnits];
  for (int f = 0; f < filters; ++f) {
    for (int u = 0; u < kWinogradUnits; ++u) sums[f][u] = hn::Zero(d);
  }
  for (int64_t c = 0; c < channels; ++c, v += kWinogradUnits * lanes, weights += of) {
    add_outer_product<T>(weights, v, lanes, sums);
  }
  for (int f = 0; f < filters; ++f) {
    for (int u = 0; u < kWinogradUnits; ++u)
      hn::Store(sums[f][u], d, m + (f * kWinogradUnits + u) * lanes);
  }
}

using Multiply = void (*)(const float*, const float*, int64_t, int64_t, float*);
#if HWY_TARGET <= HWY_AVX3
template <class T>
constexpr Multiply kMultiply[] = {multiply<T, 1>, multiply<T, 2>, multiply<T, 3>,
                                  multiply<T, 4>, multiply<T, 5>, multiply<T, 6>};
#else
template <class T>
constexpr Multiply kMultiply[] = {multiply<T, 1>, multiply<T, 2>, multiply<T, 3>};
#endif

template <class T>
void winograd(const LanesWinograd& p, const T* x, const float* weights, const float* bias, T* y,
              float* scratch) {
  const Tiles tiles{p.n, p.rows, p.columns};
  const int64_t lanes = tiles.lanes(), plane = tiles.plane(), each = kWinogradUnits * lanes;
  constexpr int64_t kSome = kTogether<T>;
  const int64_t in = p.steps();
  // Transformed elements: 36 x steps x kWinogradUnits; products: 36 x results x kWinogradUnits.
  const int64_t v_all = p.around_all(lanes), m_all = p.products_all(lanes);
  float* const v = scratch;
  float* const m = scratch + kWinogradElements * v_all;
  for (int64_t first = 0; first < tiles.units(); first += kWinogradUnits) {
    // If fewer units are left, the others are computed from what is in the scratch memory and not
    // used.
    const Units units(tiles, first);
    for (int64_t c = 0; c < p.in; c += kSome) {
      float* const to = v + c / kSome * each;
      for (int64_t u = 0; u < units.count; ++u) {
        const Unit& unit = units[u];
        for (int64_t k = c + kAhead; k < std::min(c + kAhead + kSome, p.in); ++k) {
          prefetch_input(tiles, unit, x + k * plane);
        }
        if constexpr (kSome == 1) {
          transform_input(tiles, unit, x + c * plane, to + u * lanes, v_all);
        } else {
          transform_pairs(tiles, unit, x + c * plane, c + 1 < p.in, to + u * lanes, v_all);
        }
      }
    }
    for (int64_t tile = 0; tile < weight_tiles(p.out); tile += kWinogradTilesOfWeights) {
      const int64_t end_tile = std::min(tile + kWinogradTilesOfWeights, weight_tiles(p.out));
      const int64_t begin = weight_tile_begin(p.out, tile),
                    end = weight_tile_begin(p.out, end_tile);
      for (int64_t element = 0; element < kWinogradElements; ++element) {
        const float* const w = weights + element * in * p.out;
        for (int64_t k = tile; k < end_tile; ++k) {
          const int64_t of_tile = weight_tile_begin(p.out, k),
                        of = weight_tile_begin(p.out, k + 1) - of_tile;
          for (int64_t i = 0, register_tiles = register_tiles_of(of); i < register_tiles; ++i) {
            const int64_t f = of * i / register_tiles, filters = of * (i + 1) / register_tiles - f;
            kMultiply<T>[filters - 1](v + element * v_all, w + of_tile * in + f, of, in,
                                      m + element * m_all + (of_tile + f - begin) * each);
          }
        }
      }
      for (int64_t f = begin; f < end; ++f) {
        for (int64_t u = 0; u < units.count; ++u) {
          transform_output(tiles, units[u], m + (f - begin) * each + u * lanes, m_all,
                           bias ? bias[f] : 0.0f, y + f * plane);
        }
      }
    }
  }
}

void winograd_of(const LanesWinograd& p, const void* x, const void* weights, const float* bias,
                 void* y, float* scratch) {
  with_elements(p.dtype, [&]<class T>(T*) {
    winograd(p, static_cast<const T*>(x), static_cast<const float*>(weights), bias,
             static_cast<T*>(y), scratch);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(winograd_of);

size_t LanesWinograd::scratch() const {
  return static_cast<size_t>(kWinogradElements * (around_all(kLanes) + products_all(kLanes))) *
         sizeof(float);
}

void lanes_winograd(const LanesWinograd& p, const void* x, const void* weights, const float* bias,
                    void* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(winograd_of)(p, x, weights, bias, y, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
