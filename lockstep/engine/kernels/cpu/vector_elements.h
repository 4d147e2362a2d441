// Elements in memory as vectors of floats, for files that Highway compiles once per instruction
// set. bfloat16 is meant for processors with AVX-512 BF16. Its code for other instruction sets is
// for tests.
#include "lockstep/base/numeric/bfloat16.h"

// The include guard allows one inclusion per instruction set.
#if defined(LOCKSTEP_VECTOR_ELEMENTS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_VECTOR_ELEMENTS
#undef LOCKSTEP_VECTOR_ELEMENTS
#else
#define LOCKSTEP_VECTOR_ELEMENTS
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// load() converts elements to floats. store() rounds to nearest, ties to even, and keeps NaN. The
// bf16 instruction turns subnormal numbers into 0, as ArithmeticMode does.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* from) {
#if HWY_TARGET <= HWY_AVX3
  // One shuffle replaces a conversion and a shift.
  if constexpr (sizeof(hn::Vec<D>) == 64) {
    const __m512i indices = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0,
                                             7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    const __m512i half =
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return hn::Vec<D>{
        _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, indices, half))};
  }
#endif
  const hn::Rebind<uint16_t, D> half;
  const hn::Rebind<uint32_t, D> whole;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}

// The bits of a bfloat16, in the lower half of each lane.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, D>> rounded(D, hn::Vec<D> v) {
  const hn::Rebind<uint32_t, D> whole;
  const auto bits = hn::BitCast(whole, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(whole, 1));
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(whole, 0x7fff))));
  const auto number = hn::RebindMask(whole, hn::Eq(v, v));
  return hn::IfThenElse(number, nearest, hn::Or(upper, hn::Set(whole, 0x40)));
}

// Two bf16 numbers in each lane, rounded as by store(): `lower` in the lower half, `upper` in the
// upper half.
template <class D>
HWY_INLINE hn::Vec<D> rounded_pairs(D d, hn::Vec<D> lower, hn::Vec<D> upper) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(lower) == 64) {
    // The numbers of `lower`, then those of `upper`; interleaved below.
    const __m512i in_turns =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both) : "v"(upper.raw), "v"(lower.raw));
    return hn::Vec<D>{_mm512_castsi512_ps(_mm512_permutexvar_epi16(in_turns, both))};
  }
#endif
  return hn::BitCast(d, hn::Or(rounded(d, lower), hn::ShiftLeft<16>(rounded(d, upper))));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, float* to) {
  hn::StoreU(v, d, to);
}
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, BFloat16* to) {
#if HWY_TARGET <= HWY_AVX3
  // Highway 1.0 lacks this instruction.
  if constexpr (sizeof(v) == 64) {
    __m256i half;
    asm("vcvtneps2bf16 %1, %0" : "=v"(half) : "v"(v.raw));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
    return;
  }
#endif
  const hn::Rebind<uint16_t, D> half;
  const hn::Rebind<int32_t, D> with_sign;
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(with_sign, rounded(d, v))), half,
             reinterpret_cast<uint16_t*>(to));
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
