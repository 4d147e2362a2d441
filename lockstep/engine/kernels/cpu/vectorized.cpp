#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

LOCKSTEP_CLONES void add(const float* a, const float* b, float* sum, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

LOCKSTEP_CLONES void add(const BFloat16* a, const BFloat16* b, BFloat16* sum, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] = to_bfloat16(to_float(a[i]) + to_float(b[i]));
}

LOCKSTEP_CLONES void multiply(const float* a, const float* b, float* product, size_t count) {
  for (size_t i = 0; i < count; ++i) product[i] = a[i] * b[i];
}

LOCKSTEP_CLONES void relu(const float* x, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] : (x[i] != x[i] ? x[i] : 0.0f);
}

LOCKSTEP_CLONES void relu_backward(const float* y, const float* dy, float* dx, size_t count) {
  for (size_t i = 0; i < count; ++i) dx[i] = y[i] > 0 ? dy[i] : 0.0f;
}

namespace {

// Classification by bits: values from 1 to the bits of infinity are above zero, and larger ones are
// NaN. Returns all ones or all zeros, because a condition would become an unpredictable branch.
constexpr uint16_t above_zero(BFloat16 x) {
  return static_cast<uint16_t>(-(static_cast<uint16_t>(x.bits - 1) < 0x7f80));
}
constexpr uint16_t no_number(BFloat16 x) {
  return static_cast<uint16_t>(-(static_cast<uint16_t>(x.bits & 0x7fff) > 0x7f80));
}

}  // namespace

LOCKSTEP_CLONES void relu(const BFloat16* x, BFloat16* y, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    y[i].bits = x[i].bits & (above_zero(x[i]) | no_number(x[i]));
  }
}

LOCKSTEP_CLONES void relu_backward(const BFloat16* y, const BFloat16* dy, BFloat16* dx,
                                   size_t count) {
  for (size_t i = 0; i < count; ++i) dx[i].bits = dy[i].bits & above_zero(y[i]);
}

LOCKSTEP_CLONES void clipped_relu(const float* x, float ceiling, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float above = x[i] > 0 ? x[i] : (x[i] != x[i] ? x[i] : 0.0f);
    y[i] = above > ceiling ? ceiling : above;
  }
}

LOCKSTEP_CLONES void clipped_relu_backward(const float* y, float ceiling, const float* dy,
                                           float* dx, size_t count) {
  for (size_t i = 0; i < count; ++i) dx[i] = (y[i] > 0) & (y[i] < ceiling) ? dy[i] : 0.0f;
}

LOCKSTEP_CLONES void affine(const float* x, float offset, float factor, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = (x[i] - offset) * factor;
}

LOCKSTEP_CLONES void affine(const uint8_t* x, float offset, float factor, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = (static_cast<float>(x[i]) - offset) * factor;
}

LOCKSTEP_CLONES void add_number(float number, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] += number;
}

LOCKSTEP_CLONES void affine(const float* x, const float* offset, const float* factor, float* y,
                            size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = (x[i] - offset[i]) * factor[i];
}

LOCKSTEP_CLONES void affine(const uint8_t* x, const float* offset, const float* factor, float* y,
                            size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = (static_cast<float>(x[i]) - offset[i]) * factor[i];
}

LOCKSTEP_CLONES void scale(const float* x, float factor, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

}  // namespace lockstep::kernels::cpu
