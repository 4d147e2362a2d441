// Loops over floats, compiled for several instruction sets; the best is chosen at start. All
// operations are elementwise and without contraction, so every instruction set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/clones.h"

namespace lockstep::kernels::cpu {

// sum[i] = a[i] + b[i]; may be in place.
void add(const float* a, const float* b, float* sum, size_t count);
// The same for bf16: adds in f32 and rounds.
void add(const BFloat16* a, const BFloat16* b, BFloat16* sum, size_t count);
// product[i] = a[i] * b[i]; may be in place.
void multiply(const float* a, const float* b, float* product, size_t count);
// y[i] = max(0, x[i]).
void relu(const float* x, float* y, size_t count);
void relu(const BFloat16* x, BFloat16* y, size_t count);
// y[i] = min(max(0, x[i]), ceiling).
void clipped_relu(const float* x, float ceiling, float* y, size_t count);
// dx[i] = 0 < y[i] < ceiling ? dy[i] : 0.
void clipped_relu_backward(const float* y, float ceiling, const float* dy, float* dx, size_t count);
// dx[i] = y[i] > 0 ? dy[i] : 0.
void relu_backward(const float* y, const float* dy, float* dx, size_t count);
void relu_backward(const BFloat16* y, const BFloat16* dy, BFloat16* dx, size_t count);
// y[i] = (x[i] - offset) * factor.
void affine(const float* x, float offset, float factor, float* y, size_t count);
void affine(const uint8_t* x, float offset, float factor, float* y, size_t count);
// y[i] += number.
void add_number(float number, float* y, size_t count);
// y[i] = (x[i] - offset[i]) * factor[i].
void affine(const float* x, const float* offset, const float* factor, float* y, size_t count);
void affine(const uint8_t* x, const float* offset, const float* factor, float* y, size_t count);
// y[i] = x[i] * factor.
void scale(const float* x, float factor, float* y, size_t count);

}  // namespace lockstep::kernels::cpu
