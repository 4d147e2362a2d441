#include <algorithm>

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/winograd.h"
#include "lockstep/engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/batch_lanes/winograd_weights.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/batch_lanes/winograd_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Number of filters whose gradients are transformed at a time.
constexpr int64_t kFilterBlock = 12;

// Sums of products that fit in registers: filters x vectors of channels.
#if HWY_TARGET <= HWY_AVX3
constexpr int kMostVectors = 4;
constexpr int64_t most_filters(int64_t vectors) {
  return vectors <= 2 ? 2 * kMostFilters : kMostFilters;
}
#else
constexpr int kMostVectors = 2;
constexpr int64_t most_filters(int64_t) { return 6; }
#endif

// Sizes in floats, per element of a tile, of the intermediate arrays. Channels are padded to whole
// vectors. For bfloat16, a float holds the numbers of two images.
struct Sizes {
  int64_t together;   // images per step of a sum
  int64_t channels;   // padded
  int64_t around;     // of one unit, or two: lanes x lanes
  int64_t images;     // steps x channels
  int64_t gradients;  // filters x steps
  int64_t sums;       // filters x channels

  Sizes(const LanesWinograd& p, int64_t lanes) {
    together = p.dtype == DType::bf16 ? kTogether<BFloat16> : 1;
    const int64_t steps = kWinogradUnits * lanes / together;
    channels = (p.in + lanes - 1) / lanes * lanes;
    around = lanes * lanes + kWinogradApart;
    images = steps * channels + kWinogradApart;
    gradients = std::min(p.out, kFilterBlock) * steps + kWinogradApart;
    sums = p.out * channels + kWinogradApart;
  }
  int64_t all() const { return kWinogradElements * (around + images + gradients + sums); }
};

struct Memory {
  Sizes each;
  float *around, *images, *gradients, *sums;

  Memory(const LanesWinograd& p, int64_t lanes, float* scratch) : each(p, lanes) {
    around = scratch;
    images = around + kWinogradElements * each.around;
    gradients = images + kWinogradElements * each.images;
    sums = gradients + kWinogradElements * each.gradients;
  }
};

#if HWY_TARGET <= HWY_AVX2
// Loads the rows and transposes each block of four by four.
template <int rows>
HWY_INLINE void transpose_blocks(const float* from, V (&a)[rows]) {
  const D d;
  const hn::Repartition<double, D> pairs;
  V b[rows];
  for (int i = 0; i < rows; ++i) a[i] = hn::Load(d, from + i * rows);
  // Elements, then pairs of elements.
  for (int i = 0; i < rows; i += 2) {
    b[i] = hn::InterleaveLower(d, a[i], a[i + 1]);
    b[i + 1] = hn::InterleaveUpper(d, a[i], a[i + 1]);
  }
  for (int i = 0; i < rows; i += 4) {
    for (int k = 0; k < 2; ++k) {
      const auto lower = hn::BitCast(pairs, b[i + k]), upper = hn::BitCast(pairs, b[i + 2 + k]);
      a[i + 2 * k] = hn::BitCast(d, hn::InterleaveLower(pairs, lower, upper));
      a[i + 2 * k + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, lower, upper));
    }
  }
}
#endif

// to[j][i] = from[i][j] for a square of as many vectors as lanes. Rows of `to` are `step` apart.
HWY_INLINE void transpose(const float* from, float* to, int64_t step) {
#if HWY_TARGET <= HWY_AVX3
  const D d;
  V a[kLanes];
  transpose_blocks(from, a);
  // Transposes the blocks: block j of a[4 i + k] becomes block i of row 4 j + k.
  for (int k = 0; k < 4; ++k) {
    const V low02 = hn::ConcatLowerLower(d, a[8 + k], a[k]),
            high02 = hn::ConcatUpperUpper(d, a[8 + k], a[k]),
            low13 = hn::ConcatLowerLower(d, a[12 + k], a[4 + k]),
            high13 = hn::ConcatUpperUpper(d, a[12 + k], a[4 + k]);
    hn::Store(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(low13), low02), d, to + k * step);
    hn::Store(hn::OddEvenBlocks(low13, hn::SwapAdjacentBlocks(low02)), d, to + (4 + k) * step);
    hn::Store(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high13), high02), d, to + (8 + k) * step);
    hn::Store(hn::OddEvenBlocks(high13, hn::SwapAdjacentBlocks(high02)), d, to + (12 + k) * step);
  }
#elif HWY_TARGET == HWY_AVX2
  const D d;
  V a[kLanes / 2];
  transpose_blocks(from, a);
  for (int k = 0; k < 4; ++k) {
    hn::Store(hn::ConcatLowerLower(d, a[4 + k], a[k]), d, to + k * step);
    hn::Store(hn::ConcatUpperUpper(d, a[4 + k], a[k]), d, to + (4 + k) * step);
  }
#else
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t j = 0; j < lanes; ++j) {
    for (int64_t i = 0; i < lanes; ++i) to[j * step + i] = from[i * lanes + j];
  }
#endif
}

// Stores zeros in place of the elements or gradients of a missing unit.
template <class T>
HWY_INLINE void nothing(T* to, int64_t step) {
  for (int i = 0; i < kWinogradElements; ++i) store_images(hn::Zero(D()), to + i * step);
}

// B^T x B of all channels around some units. Rows are images, or pairs of images for bfloat16, with
// channels adjacent.
template <class T>
void transform_images(const LanesWinograd& p, const Tiles& tiles, const Units& units, const T* x,
                      const Memory& to) {
  const D d;
  const int64_t lanes = tiles.lanes(), plane = tiles.plane();
  for (int64_t block = 0; block < p.in; block += lanes) {
    const int64_t channels = std::min(lanes, p.in - block);
    for (int64_t u = 0; u < units.count; u += kTogether<T>) {
      for (int64_t c = 0; c < channels; ++c) {
        const T* const from = x + (block + c) * plane;
        for (int64_t k = 0; k < kTogether<T>; ++k) {
          T* const around = reinterpret_cast<T*>(to.around + c * lanes) + k * lanes;
          const int64_t step = kTogether<T> * to.each.around;
          if (u + k >= units.count) {
            nothing(around, step);
            continue;
          }
          const Unit& unit = units[u + k];
          if (block + c + kAhead < p.in) prefetch_input(tiles, unit, from + kAhead * plane);
          transform_input(tiles, unit, from, around, step);
        }
      }
      const int64_t row = u / kTogether<T> * lanes;
      for (int64_t element = 0; element < kWinogradElements; ++element) {
        float* const around = to.around + element * to.each.around;
        for (int64_t c = channels; c < lanes; ++c) hn::Store(hn::Zero(d), d, around + c * lanes);
        transpose(around, to.images + element * to.each.images + row * to.each.channels + block,
                  to.each.channels);
      }
    }
  }
}

// One axis of G y without the divisors: four gradients to six.
HWY_INLINE void gradient_axis(const Points& p, const V& y0, const V& y1, const V& y2, const V& y3,
                              V (&out)[kAround]) {
  const V even_a = hn::MulAdd(p.a2, y2, y0), odd_a = hn::Mul(p.a, hn::MulAdd(p.a2, y3, y1));
  const V even_b = hn::MulAdd(p.b2, y2, y0), odd_b = hn::Mul(p.b, hn::MulAdd(p.b2, y3, y1));
  out[0] = y0;
  out[1] = hn::Add(even_a, odd_a);
  out[2] = hn::Sub(even_a, odd_a);
  out[3] = hn::Add(even_b, odd_b);
  out[4] = hn::Sub(even_b, odd_b);
  out[5] = y3;
}

// Stores G y G^T of a filter's gradients in a unit as 36 vectors, `step` apart.
template <class T>
HWY_INLINE void transform_gradient(const Tiles& t, const Unit& u, const T* plane, T* to,
                                   int64_t step) {
  const D d;
  const Points points;
  V half[kTile][kAround];
  to = opaque(to);
  const int64_t columns = std::min<int64_t>(kTile, t.columns - u.column);
  for (int r = 0; r < kTile; ++r) {
    const T* const from = plane + (u.row + r) * t.row() + u.column * t.n + u.lane;
    V y[kTile];
    for (int c = 0; c < kTile; ++c) {
      y[c] = u.row + r < t.rows && c < columns ? load_images(from + c * t.n) : hn::Zero(d);
    }
    gradient_axis(points, y[0], y[1], y[2], y[3], half[r]);
  }
  for (int c = 0; c < kAround; ++c) {
    V w[kAround];
    gradient_axis(points, half[0][c], half[1][c], half[2][c], half[3][c], w);
    for (int r = 0; r < kAround; ++r) store_images(w[r], to + (kAround * r + c) * step);
  }
}

// Adds the products of some images to sums of filters x channels; with `begins`, overwrites the
// sums. Rows of sums and of v are `channels` apart. The gradients of a filter are `d_step` apart.
template <class T, int filters, int vectors>
HWY_INLINE void multiply(const float* v, int64_t channels, const float* gradients, int64_t d_step,
                         int64_t steps, bool begins, float* to) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[filters][vectors];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < vectors; ++c) sums[f][c] = hn::Zero(d);
  }
  for (int64_t i = 0; i < steps; ++i, v += channels) {
    V in[vectors];
    for (int c = 0; c < vectors; ++c) in[c] = hn::Load(d, v + c * lanes);
    for (int f = 0; f < filters; ++f) {
      const V g = hn::Set(d, gradients[f * d_step + i]);
      for (int c = 0; c < vectors; ++c) sums[f][c] = multiply_add<T>(g, in[c], sums[f][c]);
    }
  }
  // Adding partial sums has smaller rounding errors than one long sum.
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < vectors; ++c) {
      float* const sum = to + f * channels + c * lanes;
      hn::Store(hn::Add(begins ? hn::Zero(d) : hn::Load(d, sum), sums[f][c]), d, sum);
    }
  }
}

using Multiply = void (*)(const float*, int64_t, const float*, int64_t, int64_t, bool, float*);
// Indexed by filters - 1, then by vectors - 1.
#if HWY_TARGET <= HWY_AVX3
template <class T>
constexpr Multiply kMultiply[][kMostVectors] = {
    {multiply<T, 1, 1>, multiply<T, 1, 2>, multiply<T, 1, 3>, multiply<T, 1, 4>},
    {multiply<T, 2, 1>, multiply<T, 2, 2>, multiply<T, 2, 3>, multiply<T, 2, 4>},
    {multiply<T, 3, 1>, multiply<T, 3, 2>, multiply<T, 3, 3>, multiply<T, 3, 4>},
    {multiply<T, 4, 1>, multiply<T, 4, 2>, multiply<T, 4, 3>, multiply<T, 4, 4>},
    {multiply<T, 5, 1>, multiply<T, 5, 2>, multiply<T, 5, 3>, multiply<T, 5, 4>},
    {multiply<T, 6, 1>, multiply<T, 6, 2>, multiply<T, 6, 3>, multiply<T, 6, 4>},
    {multiply<T, 7, 1>, multiply<T, 7, 2>},
    {multiply<T, 8, 1>, multiply<T, 8, 2>},
    {multiply<T, 9, 1>, multiply<T, 9, 2>},
    {multiply<T, 10, 1>, multiply<T, 10, 2>},
    {multiply<T, 11, 1>, multiply<T, 11, 2>},
    {multiply<T, 12, 1>, multiply<T, 12, 2>}};
#else
template <class T>
constexpr Multiply kMultiply[][kMostVectors] = {
    {multiply<T, 1, 1>, multiply<T, 1, 2>}, {multiply<T, 2, 1>, multiply<T, 2, 2>},
    {multiply<T, 3, 1>, multiply<T, 3, 2>}, {multiply<T, 4, 1>, multiply<T, 4, 2>},
    {multiply<T, 5, 1>, multiply<T, 5, 2>}, {multiply<T, 6, 1>, multiply<T, 6, 2>}};
#endif

// Multiplies some images, `steps` steps of the sums, for `filters` filters from `block` on.
template <class T>
void multiply_all(const Memory& m, int64_t lanes, int64_t block, int64_t filters, int64_t steps,
                  bool begins) {
  const int64_t vectors = m.each.channels / lanes, d_step = kWinogradUnits * lanes / kTogether<T>;
  const int64_t parts = (vectors + kMostVectors - 1) / kMostVectors;
  for (int64_t element = 0; element < kWinogradElements; ++element) {
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = vectors * part / parts, of = vectors * (part + 1) / parts - begin;
      const int64_t register_tiles = (filters + most_filters(of) - 1) / most_filters(of);
      for (int64_t i = 0; i < register_tiles; ++i) {
        const int64_t f = filters * i / register_tiles;
        const int64_t some = filters * (i + 1) / register_tiles - f;
        kMultiply<T>[some - 1][of - 1](
            m.images + element * m.each.images + begin * lanes, m.each.channels,
            m.gradients + element * m.each.gradients + f * d_step, d_step, steps, begins,
            m.sums + element * m.each.sums + (block + f) * m.each.channels + begin * lanes);
      }
    }
  }
}

// One axis of A^T m: six sums to three weights.
HWY_INLINE void weights_axis(const Points& p, const V (&m)[kAround], V (&out)[3]) {
  const V sum_a = hn::Add(m[1], m[2]), difference_a = hn::Sub(m[1], m[2]);
  const V sum_b = hn::Add(m[3], m[4]), difference_b = hn::Sub(m[3], m[4]);
  out[0] = hn::Add(m[0], hn::Add(sum_a, sum_b));
  out[1] = hn::MulAdd(p.a, difference_a, hn::Mul(p.b, difference_b));
  out[2] = hn::Add(m[5], hn::MulAdd(p.a2, sum_a, hn::Mul(p.b2, sum_b)));
}

// Stores the windows of `channels` channels, given as nine vectors, in consecutive memory.
HWY_INLINE void put_windows(const float* windows, int64_t channels, float* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
#if HWY_TARGET <= HWY_AVX3
  HWY_ALIGN float turned[kLanes * kLanes];
  transpose(windows, turned, kLanes);
  // Each store writes beyond its window; the next window overwrites that.
  for (int64_t c = 0; c + 1 < channels; ++c) {
    hn::StoreU(hn::Load(D(), turned + c * lanes), D(), to + c * 9);
  }
  std::copy_n(turned + (channels - 1) * lanes, 9, to + (channels - 1) * 9);
#else
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < 9; ++i) to[c * 9 + i] = windows[i * lanes + c];
  }
#endif
}

// A^T m A of all sums.
void transform_sums(const LanesWinograd& p, const Memory& m, int64_t lanes, float* dweights) {
  const D d;
  const Points points;
  for (int64_t f = 0; f < p.out; ++f) {
    for (int64_t block = 0; block < p.in; block += lanes) {
      V half[kAround][3];
      for (int c = 0; c < kAround; ++c) {
        V sums[kAround];
        for (int r = 0; r < kAround; ++r) {
          const int64_t element = kAround * r + c;
          const V divided = hn::Set(d, static_cast<float>(1 / (kDivisors[r] * kDivisors[c])));
          sums[r] = hn::Mul(
              divided, hn::Load(d, m.sums + element * m.each.sums + f * m.each.channels + block));
        }
        weights_axis(points, sums, half[c]);
      }
      HWY_ALIGN float window[kLanes * kLanes] = {};  // nine vectors, padded to a square
      for (int r = 0; r < 3; ++r) {
        const V row[kAround] = {half[0][r], half[1][r], half[2][r],
                                half[3][r], half[4][r], half[5][r]};
        V w[3];
        weights_axis(points, row, w);
        for (int c = 0; c < 3; ++c) hn::Store(w[c], d, window + (3 * r + c) * lanes);
      }
      put_windows(window, std::min(lanes, p.in - block), dweights + (f * p.in + block) * 9);
    }
  }
}

template <class T>
void winograd_weights(const LanesWinograd& p, const T* x, const T* dy, float* dweights,
                      float* scratch) {
  const Tiles tiles{p.n, p.rows, p.columns};
  const int64_t lanes = tiles.lanes(), plane = tiles.plane();
  const Memory m(p, lanes, scratch);
  for (int64_t first = 0; first < tiles.units(); first += kWinogradUnits) {
    const Units units(tiles, first);
    const int64_t whole = (units.count + kTogether<T> - 1) / kTogether<T> * kTogether<T>;
    transform_images(p, tiles, units, x, m);
    for (int64_t block = 0; block < p.out; block += kFilterBlock) {
      const int64_t filters = std::min(kFilterBlock, p.out - block);
      for (int64_t f = 0; f < filters; ++f) {
        for (int64_t u = 0; u < whole; ++u) {
          T* const to = reinterpret_cast<T*>(m.gradients) + (f * kWinogradUnits + u) * lanes;
          const int64_t step = kTogether<T> * m.each.gradients;
          if (u < units.count) {
            transform_gradient(tiles, units[u], dy + (block + f) * plane, to, step);
          } else {
            nothing(to, step);
          }
        }
      }
      multiply_all<T>(m, lanes, block, filters, whole * lanes / kTogether<T>, first == 0);
    }
  }
  transform_sums(p, m, lanes, dweights);
}

void winograd_weights_of(const LanesWinograd& p, const void* x, const void* dy, float* dweights,
                         float* scratch) {
  with_elements(p.dtype, [&]<class T>(T*) {
    winograd_weights(p, static_cast<const T*>(x), static_cast<const T*>(dy), dweights, scratch);
  });
}

size_t weights_scratch(const LanesWinograd& p) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  return static_cast<size_t>(Sizes(p, lanes).all()) * sizeof(float);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(winograd_weights_of);
HWY_EXPORT(weights_scratch);

size_t LanesWinograd::weights_scratch() const {
  return HWY_DYNAMIC_DISPATCH(weights_scratch)(*this);
}

void lanes_winograd_weights(const LanesWinograd& p, const void* x, const void* dy, float* dweights,
                            float* scratch) {
  HWY_DYNAMIC_DISPATCH(winograd_weights_of)(p, x, dy, dweights, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
