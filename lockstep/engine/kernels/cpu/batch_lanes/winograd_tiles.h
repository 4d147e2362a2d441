// Tiles of Winograd's F(4x4, 3x3) and F(3x3, 4x4) for images in lanes, for files that Highway
// compiles once per instruction set. Planes, results and strides are whole vectors. Thread-safe.
#include "lockstep/engine/kernels/cpu/batch_lanes/winograd.h"

// The include guard allows one inclusion per instruction set.
#if defined(LOCKSTEP_LANES_WINOGRAD_TILES) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_LANES_WINOGRAD_TILES
#undef LOCKSTEP_LANES_WINOGRAD_TILES
#else
#define LOCKSTEP_LANES_WINOGRAD_TILES
#endif

#include <algorithm>

#include "lockstep/engine/kernels/cpu/batch_lanes/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {

// Results of a tile along one axis, and the input elements that they need.
constexpr int kTile = kWinogradTile, kAround = kTile + 2;
// Distance in channels between prefetch and transformation.
constexpr int64_t kAhead = 2;

// Rows and columns of images, and the tiles over them. A unit is one tile of as many images as a
// vector has lanes. Units of the same tile are consecutive.
struct Tiles {
  int64_t n, rows, columns;

  int64_t lanes() const { return static_cast<int64_t>(hn::Lanes(D())); }
  int64_t row() const { return columns * n; }
  int64_t plane() const { return rows * columns * n; }
  int64_t across() const { return (columns + kTile - 1) / kTile; }
  int64_t units() const { return (rows + kTile - 1) / kTile * across() * (n / lanes()); }
};

struct Unit {
  int64_t row = 0, column = 0;  // of the tile's first result
  int64_t lane = 0;             // of the first image

  Unit() = default;
  Unit(const Tiles& t, int64_t number) {
    const int64_t each = t.n / t.lanes(), tile = number / each;
    row = tile / t.across() * kTile;
    column = tile % t.across() * kTile;
    lane = number % each * t.lanes();
  }
};

// Units that are computed together.
struct Units {
  int64_t count;
  Unit each[kWinogradUnits];

  Units(const Tiles& t, int64_t first) : count(std::min(kWinogradUnits, t.units() - first)) {
    for (int64_t u = 0; u < count; ++u) each[u] = Unit(t, first + u);
  }
  const Unit& operator[](int64_t u) const { return each[u]; }
};

// Returns the same address, but hides it from the compiler. Otherwise the compiler keeps a pointer
// to each of the 36 addresses in memory and advances all of them.
template <class T>
HWY_INLINE T* opaque(T* address) {
  asm("" : "+r"(address));
  return address;
}

// Powers of the points a and b (kPointA, kPointB), and sum and product of their squares. Both signs
// are used; 0 and infinity need no constants.
struct Points {
  V a, b, a2, b2, a3, b3, sum, product;

  HWY_INLINE Points() {
    const D d;
    a = hn::Set(d, kPointA);
    b = hn::Set(d, kPointB);
    a2 = hn::Set(d, kPointA * kPointA);
    b2 = hn::Set(d, kPointB * kPointB);
    a3 = hn::Set(d, kPointA * kPointA * kPointA);
    b3 = hn::Set(d, kPointB * kPointB * kPointB);
    sum = hn::Set(d, kPointA * kPointA + kPointB * kPointB);
    product = hn::Set(d, kPointA * kPointA * kPointB * kPointB);
  }
};

// One axis of B^T d: six elements to six.
HWY_INLINE void input_axis(const Points& p, const V& d0, const V& d1, const V& d2, const V& d3,
                           const V& d4, const V& d5, V (&out)[kAround]) {
  const V even_a = hn::NegMulAdd(p.b2, d2, d4), odd_a = hn::Mul(p.a, hn::NegMulAdd(p.b2, d1, d3));
  const V even_b = hn::NegMulAdd(p.a2, d2, d4), odd_b = hn::Mul(p.b, hn::NegMulAdd(p.a2, d1, d3));
  out[0] = hn::NegMulAdd(p.sum, d2, hn::MulAdd(p.product, d0, d4));
  out[1] = hn::Add(even_a, odd_a);
  out[2] = hn::Sub(even_a, odd_a);
  out[3] = hn::Add(even_b, odd_b);
  out[4] = hn::Sub(even_b, odd_b);
  out[5] = hn::NegMulAdd(p.sum, d3, hn::MulAdd(p.product, d1, d5));
}

// d B of a channel's elements around a whole tile. `left` and `right`: the tile is at that edge of
// the image.
template <bool left, bool right, class T>
HWY_INLINE void rows_of_whole(const Tiles& t, const Unit& u, const T* plane, const Points& points,
                              V (&half)[kAround][kAround]) {
  const D d;
  for (int r = 0; r < kAround; ++r) {
    const int64_t row = u.row - 1 + r;
    if (row < 0 || row >= t.rows) {
      for (int c = 0; c < kAround; ++c) half[r][c] = hn::Zero(d);
      continue;
    }
    const T* const from = plane + row * t.row() + u.column * t.n + u.lane;
    input_axis(points, left ? hn::Zero(d) : load_images(from - t.n), load_images(from),
               load_images(from + t.n), load_images(from + 2 * t.n), load_images(from + 3 * t.n),
               right ? hn::Zero(d) : load_images(from + 4 * t.n), half[r]);
  }
}

// The same for a tile that extends beyond the image's last column.
template <class T>
HWY_INLINE void rows_of_part(const Tiles& t, const Unit& u, const T* plane, const Points& points,
                             V (&half)[kAround][kAround]) {
  const D d;
  for (int r = 0; r < kAround; ++r) {
    const int64_t row = u.row - 1 + r;
    V e[kAround];
    for (int c = 0; c < kAround; ++c) {
      const int64_t column = u.column - 1 + c;
      const bool inside = row >= 0 && row < t.rows && column >= 0 && column < t.columns;
      e[c] = inside ? load_images(plane + row * t.row() + column * t.n + u.lane) : hn::Zero(d);
    }
    input_axis(points, e[0], e[1], e[2], e[3], e[4], e[5], half[r]);
  }
}

template <class T>
HWY_INLINE void rows_of(const Tiles& t, const Unit& u, const T* plane, const Points& points,
                        V (&half)[kAround][kAround]) {
  const bool left = u.column == 0, right = u.column + kTile == t.columns;
  if (u.column + kTile > t.columns) {
    rows_of_part(t, u, plane, points, half);
  } else if (left && right) {
    rows_of_whole<true, true>(t, u, plane, points, half);
  } else if (left) {
    rows_of_whole<true, false>(t, u, plane, points, half);
  } else if (right) {
    rows_of_whole<false, true>(t, u, plane, points, half);
  } else {
    rows_of_whole<false, false>(t, u, plane, points, half);
  }
}

HWY_INLINE void column_of(const Points& points, const V (&half)[kAround][kAround], int c,
                          V (&out)[kAround]) {
  input_axis(points, half[0][c], half[1][c], half[2][c], half[3][c], half[4][c], half[5][c], out);
}

// Stores B^T d B of a channel's elements around a tile as 36 vectors, `step` apart.
template <class T>
HWY_INLINE void transform_input(const Tiles& t, const Unit& u, const T* plane, T* to,
                                int64_t step) {
  const Points points;
  V half[kAround][kAround];
  rows_of(t, u, plane, points, half);
  to = opaque(to);
  for (int c = 0; c < kAround; ++c) {
    V v[kAround];
    column_of(points, half, c, v);
    for (int r = 0; r < kAround; ++r) store_images(v[r], to + (kAround * r + c) * step);
  }
}

// The same for two channels, or one channel and zeros: 36 vectors of pairs.
HWY_INLINE void transform_pairs(const Tiles& t, const Unit& u, const BFloat16* plane, bool two,
                                float* to, int64_t step) {
  const Points points;
  V half[kAround][kAround], other[kAround][kAround];
  rows_of(t, u, plane, points, half);
  if (two) rows_of(t, u, plane + t.plane(), points, other);
  to = opaque(to);
  for (int c = 0; c < kAround; ++c) {
    V v[kAround], w[kAround];
    column_of(points, half, c, v);
    if (two) {
      column_of(points, other, c, w);
    } else {
      std::fill_n(w, kAround, hn::Zero(D()));
    }
    for (int r = 0; r < kAround; ++r) {
      hn::Store(pairs_of(v[r], w[r]), D(), to + (kAround * r + c) * step);
    }
  }
}

// Prefetches what transform_input() will read of a channel and did not read for the previous tile.
// The cache lines are too far apart for hardware prefetchers.
template <class T>
HWY_INLINE void prefetch_input(const Tiles& t, const Unit& u, const T* plane) {
  const int64_t end_row = std::min(u.row + kTile + 1, t.rows);
  // The previous tile has read the first two columns.
  const int64_t column = u.column == 0 ? 0 : u.column + 1,
                end = std::min(u.column + kTile + 1, t.columns);
  // Columns per cache line.
  const int64_t step = t.n < kLanes * kTogether<T> ? kTogether<T> : 1;
  for (int64_t row = std::max<int64_t>(0, u.row - 1); row < end_row; ++row) {
    for (int64_t c = column; c < end; c += step)
      hwy::Prefetch(plane + row * t.row() + c * t.n + u.lane);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
