#include "lockstep/engine/kernels/cpu/reductions/reduce_loops.h"

#include <algorithm>
#include <limits>

#include "lockstep/engine/kernels/reductions/reduce_axes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/reductions/reduce_loops.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  using T = double;
  static constexpr float neutral = 0;
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::Add(a, b);
  }
  static HWY_INLINE T join(T a, T b) { return a + b; }
};
struct Product {
  using T = double;
  static constexpr float neutral = 1;
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::Mul(a, b);
  }
  static HWY_INLINE T join(T a, T b) { return a * b; }
};
struct Maximum {
  using T = float;
  static constexpr float neutral = -std::numeric_limits<float>::infinity();
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
  static HWY_INLINE T join(T a, T b) { return (a > b) | (a != a) ? a : b; }
};
struct Minimum {
  using T = float;
  static constexpr float neutral = std::numeric_limits<float>::infinity();
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
  static HWY_INLINE T join(T a, T b) { return (a < b) | (a != a) ? a : b; }
};

template <class D>
HWY_INLINE hn::Vec<D> widened(D d, const float* x) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
    return hn::LoadU(d, x);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), x));
  }
}

// The lanes of some rows, in registers.
template <class Op, size_t rows>
struct Lanes {
  using T = typename Op::T;
  using D = hn::ScalableTag<T>;
  static constexpr auto together = static_cast<int64_t>(HWY_LANES(T));
  static constexpr auto vectors = static_cast<size_t>(kReduceLanes / together);
  hn::Vec<D> of[rows][vectors];

  HWY_INLINE Lanes() {
    for (auto& row : of) {
      for (auto& v : row) v = hn::Set(D(), static_cast<T>(Op::neutral));
    }
  }
  HWY_INLINE void load(const T* lanes) {
    for (auto& row : of) {
      for (auto& v : row) {
        v = hn::LoadU(D(), lanes);
        lanes += together;
      }
    }
  }
  HWY_INLINE void store(T* lanes) const {
    for (const auto& row : of) {
      for (const auto& v : row) {
        hn::StoreU(v, D(), lanes);
        lanes += together;
      }
    }
  }
  HWY_INLINE void add(size_t row, const float* x) {
    for (auto& v : of[row]) {
      v = Op::join(v, widened(D(), x));
      x += together;
    }
  }
  // The elements of all rows in order.
  HWY_INLINE void add_rows(const float* const* x, int64_t length) {
    const int64_t whole = length / kReduceLanes * kReduceLanes;
    for (int64_t j = 0; j < whole; j += kReduceLanes) {
      for (size_t r = 0; r < rows; ++r) add(r, x[r] + j);
    }
    if (whole == length) return;
    for (size_t r = 0; r < rows; ++r) {
      float rest[kReduceLanes];
      std::fill_n(rest, kReduceLanes, Op::neutral);
      for (int64_t j = whole; j < length; ++j) rest[j - whole] = x[r][j];
      add(r, rest);
    }
  }
  // A row's result by the tree. Vectors are joined while several have its lanes.
  HWY_INLINE T result(size_t row) const {
    hn::Vec<D> left[vectors];
    for (size_t v = 0; v < vectors; ++v) left[v] = of[row][v];
    for (size_t half = vectors / 2; half > 0; half /= 2) {
      for (size_t v = 0; v < half; ++v) left[v] = Op::join(left[v], left[v + half]);
    }
    T lanes[together];
    hn::StoreU(left[0], D(), lanes);
    for (int64_t half = together / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) lanes[l] = Op::join(lanes[l], lanes[l + half]);
    }
    return lanes[0];
  }
  HWY_INLINE void fold(T* totals) const {
    for (size_t r = 0; r < rows; ++r) totals[r] = Op::join(totals[r], result(r));
  }
};

// Several rows at once hide the latency of additions; most instruction sets have too few registers
// for four.
constexpr int64_t kRowsAtOnce = HWY_LANES(float) == 16 ? 4 : 2;

template <class Op, size_t rows>
HWY_INLINE void reduce_some(const float* const* x, int64_t length, typename Op::T* totals) {
  Lanes<Op, rows> lanes;
  lanes.add_rows(x, length);
  lanes.fold(totals);
}

template <class Op>
void reduce_rows(const float* const* x, int64_t rows, int64_t length, typename Op::T* totals) {
  for (; rows >= kRowsAtOnce; rows -= kRowsAtOnce, x += kRowsAtOnce, totals += kRowsAtOnce) {
    reduce_some<Op, kRowsAtOnce>(x, length, totals);
  }
  for (; rows > 0; --rows) reduce_some<Op, 1>(x++, length, totals++);
}

template <class Op, size_t rows>
HWY_INLINE void add_some(const float* const* x, int64_t length, typename Op::T* memory) {
  Lanes<Op, rows> lanes;
  lanes.load(memory);
  lanes.add_rows(x, length);
  lanes.store(memory);
}

template <class Op>
void add_rows(const float* const* x, int64_t rows, int64_t length, typename Op::T* lanes) {
  for (; rows >= kRowsAtOnce; rows -= kRowsAtOnce, x += kRowsAtOnce) {
    add_some<Op, kRowsAtOnce>(x, length, lanes);
    lanes += kRowsAtOnce * kReduceLanes;
  }
  for (; rows > 0; --rows, lanes += kReduceLanes) add_some<Op, 1>(x++, length, lanes);
}

template <class Op>
void fold_lanes(const typename Op::T* memory, int64_t rows, typename Op::T* totals) {
  Lanes<Op, 1> lanes;
  for (; rows > 0; --rows, memory += kReduceLanes) {
    lanes.load(memory);
    lanes.fold(totals++);
  }
}

template <class Op, size_t positions>
HWY_INLINE void add_columns_of(const float* const* x, int64_t count, typename Op::T* columns) {
  const hn::ScalableTag<typename Op::T> d;
  const hn::CappedTag<typename Op::T, 1> one;
  const auto together = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + together <= count; c += together) {
    auto sum = hn::LoadU(d, columns + c);
    for (size_t p = 0; p < positions; ++p) sum = Op::join(sum, widened(d, x[p] + c));
    hn::StoreU(sum, d, columns + c);
  }
  for (; c < count; ++c) {
    auto sum = hn::LoadU(one, columns + c);
    for (size_t p = 0; p < positions; ++p) {
      sum = Op::join(sum, hn::Set(one, static_cast<typename Op::T>(x[p][c])));
    }
    hn::StoreU(sum, one, columns + c);
  }
}

template <class Op>
void add_columns(const float* const* x, int64_t positions, int64_t count, typename Op::T* columns) {
  if (positions == kPositionsTogether) {
    add_columns_of<Op, kPositionsTogether>(x, count, columns);
    return;
  }
  constexpr int64_t half = kPositionsTogether / 2;
  for (; positions >= half; positions -= half, x += half)
    add_columns_of<Op, half>(x, count, columns);
  for (; positions > 0; --positions, ++x) add_columns_of<Op, 1>(x, count, columns);
}

ReduceLoops<double> of_sum() {
  return {reduce_rows<Sum>, add_rows<Sum>, fold_lanes<Sum>, add_columns<Sum>};
}
ReduceLoops<double> of_product() {
  return {reduce_rows<Product>, add_rows<Product>, fold_lanes<Product>, add_columns<Product>};
}
ReduceLoops<float> of_maximum() {
  return {reduce_rows<Maximum>, add_rows<Maximum>, fold_lanes<Maximum>, add_columns<Maximum>};
}
ReduceLoops<float> of_minimum() {
  return {reduce_rows<Minimum>, add_rows<Minimum>, fold_lanes<Minimum>, add_columns<Minimum>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(of_sum);
HWY_EXPORT(of_product);
HWY_EXPORT(of_maximum);
HWY_EXPORT(of_minimum);

ReduceLoops<double> sum_loops() { return HWY_DYNAMIC_DISPATCH(of_sum)(); }
ReduceLoops<double> product_loops() { return HWY_DYNAMIC_DISPATCH(of_product)(); }
ReduceLoops<float> maximum_loops() { return HWY_DYNAMIC_DISPATCH(of_maximum)(); }
ReduceLoops<float> minimum_loops() { return HWY_DYNAMIC_DISPATCH(of_minimum)(); }

}  // namespace lockstep::kernels::cpu
#endif
