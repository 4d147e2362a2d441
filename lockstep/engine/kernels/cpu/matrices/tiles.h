// Tiles of products in registers, for files that Highway compiles once per instruction set.
#include "lockstep/engine/kernels/cpu/matrices/panels.h"

// The include guard allows one inclusion per instruction set.
#if defined(LOCKSTEP_MATRIX_TILES) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_MATRIX_TILES
#undef LOCKSTEP_MATRIX_TILES
#else
#define LOCKSTEP_MATRIX_TILES
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lockstep/engine/kernels/cpu/vector_elements.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {

using D = hn::CappedTag<float, kPanel>;
using V = hn::Vec<D>;

// A tile is kTileRows rows of kTileVectors vectors, whose sums fit in registers. Its columns are
// those of kTilePanels panels.
constexpr int kLanesOfVector = static_cast<int>(hn::MaxLanes(D()));
constexpr int kVectorsOfPanel = static_cast<int>(kPanel) / kLanesOfVector;
#if HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 12, kTileVectors = 2;
#elif HWY_TARGET == HWY_AVX2
constexpr int kTileRows = 6, kTileVectors = 2;
#else
constexpr int kTileRows = 2, kTileVectors = kVectorsOfPanel;
#endif
constexpr int kTilePanels = kTileVectors / kVectorsOfPanel;
static_assert(kTilePanels >= 1 && kTilePanels * kVectorsOfPanel == kTileVectors);

// a b + sum, rounded once.
HWY_INLINE V multiply_add(V a, V b, V sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  // As assembler, because GCC 12 chooses forms of the instruction that move sums between registers
  // and memory.
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
#elif HWY_NATIVE_FMA
  return hn::MulAdd(a, b, sum);
#else
  const D d;
  HWY_ALIGN float x[kLanesOfVector], y[kLanesOfVector], z[kLanesOfVector];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(sum, d, z);
  for (int i = 0; i < kLanesOfVector; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

// Adds the products of both bf16 numbers in each lane, the upper ones first. Each addition rounds.
HWY_INLINE V multiply_add_pairs(V a, V b, V sum) {
#if HWY_TARGET <= HWY_AVX3
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
#else
  const D d;
  const hn::Rebind<uint32_t, D> whole;
  const auto lower = [&](V v) { return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(whole, v))); };
  const auto upper = [&](V v) {
    return hn::BitCast(d, hn::And(hn::BitCast(whole, v), hn::Set(whole, 0xffff0000u)));
  };
  return multiply_add(lower(a), lower(b), multiply_add(upper(a), upper(b), sum));
#endif
}

template <class T>
HWY_INLINE V add_step(V a, V b, V sum) {
  return kTogether<T> == 1 ? multiply_add(a, b, sum) : multiply_add_pairs(a, b, sum);
}

// The `count` <= kTogether terms of a step, in every lane. Zeros complete it.
HWY_INLINE V load_step(const float* a, int64_t) { return hn::Set(D(), *a); }
HWY_INLINE V load_step(const BFloat16* a, int64_t count) {
  uint32_t pair = a->bits;
  if (count == 2) std::memcpy(&pair, a, sizeof pair);
  return hn::BitCast(D(), hn::Set(hn::Rebind<uint32_t, D>(), pair));
}

// A distance that the compiler knows. Where it knows how far the next term is, a step needs hardly
// any integer instructions, which take ports of multiply-adds: products are a fifth faster.
template <int64_t distance>
using Constant = std::integral_constant<int64_t, distance>;

// Adds to sum[r][v], one after another, a[r * a_row + k / kTogether * a_step + k % kTogether] times
// term k of column v of b for k < count. Panels of b are `panel` numbers apart, steps of a panel
// `b_step`. Distances are int64_t or Constant.
template <int rows, int vectors, class T, class Row, class StepOfA, class Panel,
          class StepOfB = Constant<kPanel * kTogether<T>>>
HWY_INLINE void add_products(const T* HWY_RESTRICT a, Row a_row, StepOfA a_step,
                             const T* HWY_RESTRICT b, Panel panel, int64_t count,
                             V (&sum)[rows][vectors], StepOfB b_step = {}) {
  const D d;
  // Rows in threes: base, base + row and base + 2 row are addresses that instructions can compute.
  constexpr int kGroup = std::is_same_v<Row, int64_t> ? 3 : rows,
                kGroups = (rows + kGroup - 1) / kGroup;
  const T* of_a[kGroups];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g) {
    of_a[g] = a + g * kGroup * a_row;
    // Otherwise GCC 12 computes one base from another in each step.
    if constexpr (kGroups > 1) asm("" : "+r"(of_a[g]));
  }
  // Unaligned loads cost nothing where panels are aligned, and callers may have any memory.
  const auto add = [&](int64_t terms) __attribute__((always_inline)) {
    V of_b[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      const T* const from =
          b + v / kVectorsOfPanel * panel + v % kVectorsOfPanel * kLanesOfVector * kTogether<T>;
      of_b[v] = hn::LoadU(d, reinterpret_cast<const float*>(from));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const V factor = load_step(of_a[r / kGroup] + r % kGroup * a_row, terms);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[r][v] = add_step<T>(factor, of_b[v], sum[r][v]);
    }
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) of_a[g] += a_step;
    b += b_step;
  };
  // Few branches, because leaves of the tree are short.
  const int64_t steps = count / kTogether<T>;
  int64_t k = steps % 4;
#pragma GCC unroll 1
  for (int64_t i = 0; i < k; ++i) add(kTogether<T>);
#pragma GCC unroll 1
  for (; k < steps; k += 4) {
    add(kTogether<T>);
    add(kTogether<T>);
    add(kTogether<T>);
    add(kTogether<T>);
  }
  if constexpr (kTogether < T >> 1) {
    if (count % kTogether < T >> 0) add(1);
  }
}

// The same, beginning with zeros.
template <int rows, int vectors, class T, class Row, class StepOfA, class Panel,
          class StepOfB = Constant<kPanel * kTogether<T>>>
HWY_INLINE void sum_products(const T* HWY_RESTRICT a, Row a_row, StepOfA a_step,
                             const T* HWY_RESTRICT b, Panel panel, int64_t count,
                             V (&sum)[rows][vectors], StepOfB b_step = {}) {
  const D d;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) sum[r][v] = hn::Zero(d);
  }
  add_products<rows, vectors>(a, a_row, a_step, b, panel, count, sum, b_step);
}

// Calls body with an integral constant for a number from 1 to `most`.
template <int most, class Body>
HWY_INLINE void with_constant(int64_t number, const Body& body) {
  if constexpr (most > 1) {
    if (number < most) return with_constant<most - 1>(number, body);
  }
  body(std::integral_constant<int, most>());
}

// Stores the first `columns` numbers of a row of a tile.
template <int vectors>
HWY_INLINE void store_row(const V (&row)[vectors], int64_t columns, float* to) {
  const D d;
  if (columns >= vectors * kLanesOfVector) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) hn::StoreU(row[v], d, to + v * kLanesOfVector);
    return;
  }
  HWY_ALIGN float all[vectors * kLanesOfVector];
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) hn::Store(row[v], d, all + v * kLanesOfVector);
  std::memcpy(to, all, static_cast<size_t>(columns) * sizeof(float));
}

// Where the results of a tile are: rows are `stride` numbers apart, and the first `columns` numbers
// of a row belong to it.
struct TileResults {
  float* first;
  int64_t stride, columns;
};

// finish_tile() for `columns` of fewer than `width`: the sums of a row are `width` numbers.
inline HWY_NOINLINE void finish_part(const float* sums, int64_t rows, int64_t width, bool begins,
                                     const float* bias, const TileResults& to) {
  const D d;
  for (int64_t r = 0; r < rows; ++r, sums += width) {
    float* const row = to.first + r * to.stride;
    int64_t c = 0;
    const auto finish = [&](V result, const auto& load, const auto& store) {
      if (!begins) result = hn::Add(load(row + c), result);
      if (bias) result = hn::Add(result, load(bias + c));
      store(result, row + c);
    };
    for (; c + kLanesOfVector <= to.columns; c += kLanesOfVector) {
      finish(
          hn::Load(d, sums + c), [&](const float* at) { return hn::LoadU(d, at); },
          [&](V result, float* at) { hn::StoreU(result, d, at); });
    }
    if (c == to.columns) continue;
#if HWY_TARGET <= HWY_AVX2
    const auto there = hn::FirstN(d, static_cast<size_t>(to.columns - c));
    finish(
        hn::Load(d, sums + c), [&](const float* at) { return hn::MaskedLoad(there, d, at); },
        [&](V result, float* at) { hn::BlendedStore(result, there, d, at); });
#else
    HWY_ALIGN float lanes[kLanesOfVector] = {};
    const auto bytes = static_cast<size_t>(to.columns - c) * sizeof(float);
    finish(
        hn::Load(d, sums + c),
        [&](const float* at) {
          std::memcpy(lanes, at, bytes);
          return hn::Load(d, lanes);
        },
        [&](V result, float* at) {
          hn::Store(result, d, lanes);
          std::memcpy(at, lanes, bytes);
        });
#endif
  }
}

// Writes the sums of a tile, added to what is there unless they begin, then to the `bias` of each
// column; null: none.
template <int rows, int vectors>
HWY_INLINE void finish_tile(const V (&sum)[rows][vectors], bool begins, const float* bias,
                            const TileResults& to) {
  const D d;
  // Sums stay in registers only if every access to them is as simple as this one.
  const auto each = [&](const auto& body) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) body(sum[r][v], r, v * kLanesOfVector);
    }
  };
  constexpr int64_t kWidth = vectors * kLanesOfVector;
  if (to.columns < kWidth) {
    HWY_ALIGN float sums[rows * kWidth];
    each([&](V of_tile, int r, int lane)
             __attribute__((always_inline)) { hn::Store(of_tile, d, sums + r * kWidth + lane); });
    return finish_part(sums, rows, kWidth, begins, bias, to);
  }
  const auto write = [&](const auto& result) __attribute__((always_inline)) {
    each([&](V of_tile, int r, int lane) __attribute__((always_inline)) {
      float* const at = to.first + r * to.stride + lane;
      hn::StoreU(result(of_tile, at, lane), d, at);
    });
  };
  const auto with_before = [&](V of_tile, const float* at) __attribute__((always_inline)) {
    return hn::Add(hn::LoadU(d, at), of_tile);
  };
  if (begins && !bias) {
    write([&](V of_tile, const float*, int) __attribute__((always_inline)) { return of_tile; });
  } else if (begins) {
    write([&](V of_tile, const float*, int lane) __attribute__((always_inline)) {
      return hn::Add(of_tile, hn::LoadU(d, bias + lane));
    });
  } else if (!bias) {
    write([&](V of_tile, const float* at, int)
              __attribute__((always_inline)) { return with_before(of_tile, at); });
  } else {
    write([&](V of_tile, const float* at, int lane) __attribute__((always_inline)) {
      return hn::Add(with_before(of_tile, at), hn::LoadU(d, bias + lane));
    });
  }
}

// The results of products without terms: zeros, or the bias.
inline void write_sums_of_nothing(int64_t rows, int64_t columns, const float* bias, float* to) {
  for (int64_t r = 0; r < rows; ++r, to += columns) {
    if (bias) {
      std::copy_n(bias, columns, to);
    } else {
      std::fill_n(to, columns, 0.0f);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
