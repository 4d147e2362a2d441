// Products of matrices, one or many.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst[..., i, j] = sum over k of a[..., i, k] * b[..., k, j]. The last two axes are those of
// matrices; the others, of any number, count products and are broadcast by NumPy's rules.
struct MatrixProductProblem {
  TensorSpec a;  // ... x m x k, f32; if `transpose_a`: ... x k x m
  TensorSpec b;  // ... x k x n, f32; if `transpose_b`: ... x n x k
  bool transpose_a = false, transpose_b = false;
};
// Inputs: a, b. Output: dst (... x m x n). Sums of no terms are 0. A forward pass alone; the
// gradients are products again.

}  // namespace lockstep::kernels
