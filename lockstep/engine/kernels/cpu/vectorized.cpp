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

// By the bits: above zero are 1 to infinity's as a signed number, and what is not a number beyond.
LOCKSTEP_CLONES void relu(const BFloat16* x, BFloat16* y, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const bool nan = (x[i].bits & 0x7fffu) > 0x7f80u;
    y[i].bits = static_cast<int16_t>(x[i].bits) > 0 || nan ? x[i].bits : uint16_t{0};
  }
}

LOCKSTEP_CLONES void relu_backward(const BFloat16* y, const BFloat16* dy, BFloat16* dx,
                                   size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<int16_t>(y[i].bits);
    dx[i].bits = bits > 0 && bits <= 0x7f80 ? dy[i].bits : uint16_t{0};
  }
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

LOCKSTEP_CLONES void scale(const float* x, float factor, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

}  // namespace lockstep::kernels::cpu
