// Products of blocks of attention, and what else goes over their rows, for files that Highway
// compiles once per instruction set.
#include "lockstep/engine/kernels/cpu/matrices/panels.h"

// The include guard allows one inclusion per instruction set.
#if defined(LOCKSTEP_ATTENTION_TILES) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ATTENTION_TILES
#undef LOCKSTEP_ATTENTION_TILES
#else
#define LOCKSTEP_ATTENTION_TILES
#endif

#include <algorithm>
#include <cstring>

#include "lockstep/engine/kernels/cpu/matrices/tiles.h"

#ifndef LOCKSTEP_ATTENTION_TILES_ONCE
#define LOCKSTEP_ATTENTION_TILES_ONCE
namespace lockstep::kernels::cpu {

// Rows that are computed together: whole tiles on every instruction set.
inline constexpr int64_t kGroup = 12;
constexpr int64_t groups_of(int64_t rows) { return (rows + kGroup - 1) / kGroup; }

// Element (i, k) of a left factor is at[i * row + k * step].
struct LeftFactor {
  const float* at;
  int64_t row, step;
};
// Columns in panels: term k of column c of a panel is at[k * kPanel + c].
struct RightFactor {
  const float* at;
  int64_t panel;
};
struct ProductRows {
  float* at;
  int64_t row;
};
// Which terms a sum has; count <= 0: it is left as it is.
struct TermRange {
  int64_t first, count;
};

}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {

static_assert(kGroup % kTileRows == 0);

template <int vectors, bool add>
HWY_NOINLINE void product_tile(const LeftFactor& a, const RightFactor& b, int64_t terms,
                               const ProductRows& to) {
  const D d;
  V sum[kTileRows][vectors];
  sum_products<kTileRows, vectors>(a.at, a.row, a.step, b.at, b.panel, terms, sum);
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      float* const at = to.at + r * to.row + v * kLanesOfVector;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, at), sum[r][v]) : sum[r][v], d, at);
    }
  }
}

// The rows of all groups times the columns of all panels. terms(group, panel): a TermRange.
// `add`: sums are added to what is there.
template <bool add, class Terms>
HWY_INLINE void product_tiles(int64_t groups, int64_t panels, const LeftFactor& a,
                              const RightFactor& b, const ProductRows& to, const Terms& terms) {
  for (int64_t panel = 0; panel < panels; panel += kTilePanels) {
    for (int64_t group = 0; group < groups; ++group) {
      const TermRange range = terms(group, panel);
      if (range.count <= 0) continue;
      const RightFactor columns{b.at + panel * b.panel + range.first * kPanel, b.panel};
      for (int64_t row = group * kGroup; row < (group + 1) * kGroup; row += kTileRows) {
        const LeftFactor rows{a.at + row * a.row + range.first * a.step, a.row, a.step};
        const ProductRows result{to.at + row * to.row + panel * kPanel, to.row};
        if (panels - panel >= kTilePanels) {
          product_tile<kTileVectors, add>(rows, columns, range.count, result);
        } else {
          product_tile<kVectorsOfPanel, add>(rows, columns, range.count, result);
        }
      }
    }
  }
}

// a b + c, rounded once, for single terms: the compiler chooses the form of the instruction.
HWY_INLINE V fused_of(V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  return multiply_add(a, b, c);
#endif
}

// e^x for x <= 0. Less than 2^-125 is 0, so that no result is subnormal. NaN stays NaN.
HWY_INLINE V exponential_below_1(V x) {
  const D d;
  const hn::Rebind<int32_t, D> bits;
  const V rounds_to_whole = hn::Set(d, 12582912.0f);  // 1.5 * 2^23
  const V whole = fused_of(x, hn::Set(d, 1.44269504f), rounds_to_whole);
  const V n = hn::Sub(whole, rounds_to_whole);
  // x - n log(2), in two parts.
  V r = fused_of(n, hn::Set(d, -0.693145751953125f), x);
  r = fused_of(n, hn::Set(d, -1.428606765330187e-06f), r);
  V p = hn::Set(d, 1.99394752e-04f);
  p = fused_of(p, r, hn::Set(d, 1.39333692e-03f));
  p = fused_of(p, r, hn::Set(d, 8.33321270e-03f));
  p = fused_of(p, r, hn::Set(d, 4.16664816e-02f));
  p = fused_of(p, r, hn::Set(d, 1.66666672e-01f));
  p = fused_of(p, r, hn::Set(d, 0.5f));
  const V e = hn::Add(fused_of(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  // The lowest bits of `whole` are n.
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(bits, whole), hn::Set(bits, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.64f)), hn::Mul(e, hn::BitCast(d, exponent)));
}

// The 16 virtual lanes of a row.
class Lanes {
 public:
  explicit HWY_INLINE Lanes(V all) {
    for (V& lane : lanes_) lane = all;
  }
  // Calls use(first lane, lanes) for each vector.
  template <class Use>
  HWY_INLINE void each(const Use& use) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectorsOfPanel; ++v) use(v * kLanesOfVector, lanes_[v]);
  }
  HWY_INLINE float sum() const {
    return combined([](auto a, auto b) { return hn::Add(a, b); });
  }
  HWY_INLINE float maximum() const {
    return combined([](auto a, auto b) { return hn::Max(a, b); });
  }

 private:
  // Lane l with lane l + 8, then l + 4, l + 2 and l + 1.
  template <class Combine>
  HWY_INLINE float combined(const Combine& combine) const {
    HWY_ALIGN float all[kPanel];
#pragma GCC unroll 16
    for (int v = 0; v < kVectorsOfPanel; ++v) {
      hn::Store(lanes_[v], D(), all + v * kLanesOfVector);
    }
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> quarter;
    const auto part = [&](int first) { return hn::Load(quarter, all + first); };
    const auto four = combine(combine(part(0), part(8)), combine(part(4), part(12)));
    const auto two = combine(four, hn::Shuffle1032(four));
    return hn::GetLane(combine(two, hn::Shuffle2301(two)));
#else
    const hn::CappedTag<float, 1> one;
    for (int half = static_cast<int>(kPanel) / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        hn::Store(combine(hn::Load(one, all + i), hn::Load(one, all + i + half)), one, all + i);
      }
    }
    return all[0];
#endif
  }

  V lanes_[kVectorsOfPanel];
};

// The sum of x[i] * y[i], in 16 lanes by fma, then a tree.
HWY_INLINE float dot(const float* x, const float* y, int64_t count) {
  const D d;
  Lanes total(hn::Zero(d));
  int64_t i = 0;
  for (; i + kPanel <= count; i += kPanel) {
    total.each([&](int v, V& lane) {
      lane = multiply_add(hn::LoadU(d, x + i + v), hn::LoadU(d, y + i + v), lane);
    });
  }
  if (i < count) {
    HWY_ALIGN float of_x[kPanel] = {}, of_y[kPanel] = {};
    std::copy(x + i, x + count, of_x);
    std::copy(y + i, y + count, of_y);
    total.each([&](int v, V& lane) {
      lane = multiply_add(hn::Load(d, of_x + v), hn::Load(d, of_y + v), lane);
    });
  }
  return total.sum();
}

// x *= factor, for a whole number of panels.
HWY_INLINE void scale_row(float* x, float factor, int64_t count) {
  const D d;
  const V by = hn::Set(d, factor);
  for (int64_t i = 0; i < count; i += kLanesOfVector) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), by), d, x + i);
  }
}

// to[i] = x[i] * factor.
HWY_INLINE void scaled_row(const float* x, float factor, int64_t count, float* to) {
  const D d;
  const V by = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + kLanesOfVector <= count; i += kLanesOfVector) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), by), d, to + i);
  }
  for (; i < count; ++i) to[i] = x[i] * factor;
}

// Copies rows that begin `stride` elements apart, times a factor, one after another; zeros fill the
// last group.
HWY_INLINE void copy_rows(const float* from, int64_t stride, int64_t rows, int64_t columns,
                          float factor, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    scaled_row(from + i * stride, factor, columns, to + i * columns);
  }
  std::fill(to + rows * columns, to + groups_of(rows) * kGroup * columns, 0.0f);
}

// The columns of rows that begin `stride` elements apart, in panels of `most_rows` rows. Zeros fill
// the last panel.
HWY_INLINE void pack_columns(const float* from, int64_t stride, int64_t rows, int64_t columns,
                             int64_t most_rows, float* to) {
  for (int64_t c = 0; c < columns; c += kPanel, to += most_rows * kPanel) {
    const int64_t count = std::min(kPanel, columns - c);
    for (int64_t i = 0; i < rows; ++i) {
      float* const row = to + i * kPanel;
      if (count < kPanel) std::fill_n(row, kPanel, 0.0f);
      std::memcpy(row, from + i * stride + c, static_cast<size_t>(count) * sizeof(float));
    }
  }
}

// The rows as columns in panels; zeros fill the last panel.
HWY_INLINE void pack_across(const float* from, int64_t stride, int64_t rows, int64_t columns,
                            float* to) {
  for (int64_t i = 0; i < rows; i += kPanel) {
    pack_panel(from + i * stride, stride, columns, std::min(kPanel, rows - i), to + i * columns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
