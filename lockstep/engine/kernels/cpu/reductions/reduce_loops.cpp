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
};
struct Product {
  using T = double;
  static constexpr float neutral = 1;
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::Mul(a, b);
  }
};
struct Maximum {
  using T = float;
  static constexpr float neutral = -std::numeric_limits<float>::infinity();
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct Minimum {
  using T = float;
  static constexpr float neutral = std::numeric_limits<float>::infinity();
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};

template <class D>
HWY_INLINE hn::Vec<D> widened(D d, const float* x) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
    return hn::LoadU(d, x);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), x));
  }
}

template <class Op, size_t rows>
HWY_INLINE void add_rows_of(const float* const* x, int64_t length, typename Op::T* lanes) {
  const hn::ScalableTag<typename Op::T> d;
  constexpr auto together = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr auto vectors = static_cast<size_t>(kReduceLanes / together);
  hn::Vec<decltype(d)> sums[rows][vectors];
  for (size_t r = 0; r < rows; ++r) {
    for (size_t v = 0; v < vectors; ++v) {
      sums[r][v] = hn::LoadU(
          d, lanes + static_cast<int64_t>(r * kReduceLanes) + static_cast<int64_t>(v) * together);
    }
  }
  const int64_t whole = length / kReduceLanes * kReduceLanes;
  for (int64_t j = 0; j < whole; j += kReduceLanes) {
    for (size_t r = 0; r < rows; ++r) {
      for (size_t v = 0; v < vectors; ++v) {
        sums[r][v] =
            Op::join(sums[r][v], widened(d, x[r] + j + static_cast<int64_t>(v) * together));
      }
    }
  }
  if (whole < length) {
    for (size_t r = 0; r < rows; ++r) {
      float rest[kReduceLanes];
      std::fill_n(rest, kReduceLanes, Op::neutral);
      std::copy(x[r] + whole, x[r] + length, rest);
      for (size_t v = 0; v < vectors; ++v) {
        sums[r][v] = Op::join(sums[r][v], widened(d, rest + static_cast<int64_t>(v) * together));
      }
    }
  }
  for (size_t r = 0; r < rows; ++r) {
    for (size_t v = 0; v < vectors; ++v) {
      hn::StoreU(
          sums[r][v], d,
          lanes + static_cast<int64_t>(r * kReduceLanes) + static_cast<int64_t>(v) * together);
    }
  }
}

template <class Op>
void add_rows(const float* const* x, int64_t rows, int64_t length, typename Op::T* lanes) {
  // Other instruction sets have too few registers for four rows.
  if (HWY_MAX_BYTES == 64 && rows == kRowsTogether) {
    add_rows_of<Op, kRowsTogether>(x, length, lanes);
    return;
  }
  for (; rows >= 2; rows -= 2, x += 2, lanes += 2 * kReduceLanes)
    add_rows_of<Op, 2>(x, length, lanes);
  if (rows > 0) add_rows_of<Op, 1>(x, length, lanes);
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
  for (; positions > 0; --positions, ++x) add_columns_of<Op, 1>(x, count, columns);
}

ReduceLoops<double> of_sum() { return {add_rows<Sum>, add_columns<Sum>}; }
ReduceLoops<double> of_product() { return {add_rows<Product>, add_columns<Product>}; }
ReduceLoops<float> of_maximum() { return {add_rows<Maximum>, add_columns<Maximum>}; }
ReduceLoops<float> of_minimum() { return {add_rows<Minimum>, add_columns<Minimum>}; }

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
