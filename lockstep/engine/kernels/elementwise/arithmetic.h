// What elementary functions consist of: additions, multiplications, divisions, fused
// multiplications and operations on bits, one source for all processors. IEEE 754 defines how each
// of them rounds, so all instruction sets, compilers and GPUs give the same bits. On CPUs loops
// over them are vectorized.
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/interface/host_device.h"

// The emulation of GPUs and the CPU's kernels may be parts of one program.
#if defined(__CUDACC__) || defined(LOCKSTEP_CUDA_EMULATION)
#define LOCKSTEP_FUNCTIONS_OF_PROCESSOR on_gpu
#define LOCKSTEP_FUNCTION LOCKSTEP_HOST_DEVICE inline
#else
#define LOCKSTEP_FUNCTIONS_OF_PROCESSOR on_cpu
#define LOCKSTEP_FUNCTION LOCKSTEP_INLINE
#endif

namespace lockstep::kernels {
inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {

// a * b + c, rounded once.
LOCKSTEP_FUNCTION float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LOCKSTEP_FUNCTION double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

LOCKSTEP_FUNCTION float magnitude(float x) { return __builtin_fabsf(x); }
LOCKSTEP_FUNCTION double magnitude(double x) { return __builtin_fabs(x); }

LOCKSTEP_FUNCTION float with_sign_of(float sign, float size) {
  return __builtin_copysignf(size, sign);
}
LOCKSTEP_FUNCTION double with_sign_of(double sign, double size) {
  return __builtin_copysign(size, sign);
}

LOCKSTEP_FUNCTION uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
LOCKSTEP_FUNCTION uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }
LOCKSTEP_FUNCTION float number_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
LOCKSTEP_FUNCTION double number_of(uint64_t bits) { return __builtin_bit_cast(double, bits); }

// NaN stays NaN.
template <class Real>
LOCKSTEP_FUNCTION Real at_least(Real lowest, Real x) {
  return lowest > x ? lowest : x;
}
template <class Real>
LOCKSTEP_FUNCTION Real at_most(Real highest, Real x) {
  return highest < x ? highest : x;
}
template <class Real>
LOCKSTEP_FUNCTION Real limited(Real x, Real lowest, Real highest) {
  return at_most(highest, at_least(lowest, x));
}

// By Horner's scheme; the coefficient of the highest power comes first.
template <class Real, class... Others>
LOCKSTEP_FUNCTION Real polynomial(Real x, Real first, Others... others) {
  Real sum = first;
  ((sum = fused(sum, x, others)), ...);
  return sum;
}

// The limits of log(x), where x is not a positive number: log(0) = -infinity.
template <class Real>
LOCKSTEP_FUNCTION Real with_limits_of_logarithm(Real x, Real found) {
  constexpr Real infinity = static_cast<Real>(__builtin_inf());
  found = x < infinity ? found : x;  // infinity and NaN
  found = x == 0 ? -infinity : found;
  return x < 0 ? static_cast<Real>(__builtin_nan("")) : found;
}

}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels
