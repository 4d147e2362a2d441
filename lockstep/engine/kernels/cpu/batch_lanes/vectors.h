// Vectors of images in lanes, for files that Highway compiles once per instruction set.
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"

// The include guard allows one inclusion per instruction set.
#if defined(LOCKSTEP_LANES_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_LANES_VECTORS
#undef LOCKSTEP_LANES_VECTORS
#else
#define LOCKSTEP_LANES_VECTORS
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/vector_elements.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {

using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;

// Number of filters whose sums fit in registers at once, with four vectors each. With fewer
// registers, tiles of weights (batch_lanes/weights.h) are processed in equal register tiles.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;  // 32 instead of 16
constexpr int kMostFilters = kManyRegisters ? 6 : 3;
constexpr int64_t register_tiles_of(int64_t filters) {
  return (filters + kMostFilters - 1) / kMostFilters;
}

// Loads or stores one element of as many images as there are lanes.
HWY_INLINE V load_images(const float* from) { return hn::Load(D(), from); }
HWY_INLINE V load_images(const BFloat16* from) { return load(D(), from); }
HWY_INLINE void store_images(V v, float* to) { hn::Store(v, D(), to); }
HWY_INLINE void store_images(V v, BFloat16* to) { store(v, D(), to); }

// Two bf16 numbers in each lane.
HWY_INLINE V pairs_of(V lower, V upper) { return rounded_pairs(D(), lower, upper); }

#if HWY_TARGET <= HWY_AVX3
// sum plus the products of both numbers in each lane.
HWY_INLINE V add_products(V a, V b, V sum) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#else
HWY_INLINE V add_products(V a, V b, V sum) {
  const D d;
  const hn::Rebind<uint32_t, D> whole;
  const auto lower = [&](V v) { return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(whole, v))); };
  const auto upper = [&](V v) {
    return hn::BitCast(d, hn::And(hn::BitCast(whole, v), hn::Set(whole, 0xffff0000u)));
  };
  return hn::MulAdd(upper(a), upper(b), hn::MulAdd(lower(a), lower(b), sum));
}
#endif

// Numbers in a lane: one f32 or two bf16. They form one step of a sum.
template <class T>
constexpr int kTogether = sizeof(float) / sizeof(T);

template <class T>
HWY_INLINE V multiply_add(V a, V b, V sum) {
  if constexpr (kTogether<T> == 1) {
    return hn::MulAdd(a, b, sum);
  } else {
    return add_products(a, b, sum);
  }
}

// sums[f][c] += weights[f] * in[c], where in[c] is at in + c * step.
template <class T, int filters, int columns>
HWY_INLINE void add_outer_product(const float* weights, const float* in, int64_t step,
                                  V (&sums)[filters][columns]) {
  const D d;
  if constexpr (kManyRegisters) {
    V all[columns];
    for (int c = 0; c < columns; ++c) all[c] = hn::Load(d, in + c * step);
    for (int f = 0; f < filters; ++f) {
      const V weight = hn::Set(d, weights[f]);
      for (int c = 0; c < columns; ++c) sums[f][c] = multiply_add<T>(weight, all[c], sums[f][c]);
    }
  } else {
    // The registers hold three weights, but not four vectors as well.
    V all[filters];
    for (int f = 0; f < filters; ++f) all[f] = hn::Set(d, weights[f]);
    for (int c = 0; c < columns; ++c) {
      const V one = hn::Load(d, in + c * step);
      for (int f = 0; f < filters; ++f) sums[f][c] = multiply_add<T>(all[f], one, sums[f][c]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
