// One unit of a recurrent layer at one step, and its derivatives. One source for CPUs and GPUs,
// with the same bits (elementwise/arithmetic.h).
#pragma once

#include "lockstep/engine/kernels/elementwise/functions.h"

namespace lockstep::kernels {
inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {

// `found`, or NaN where x is NaN. By bits, because compilers would compute `found` in a branch.
LOCKSTEP_FUNCTION float nan_of(float x, float found) {
  return number_of(bits_of(found) | (x == x ? 0u : 0x7fc00000u));
}

// Sigmoid and tanh to 2 units in the last place, in half the time of those in functions.h: a gate's
// argument is a sum in f32, whose error is larger. Infinities give 0 (or nearly 0), 1 and -1.
LOCKSTEP_FUNCTION float gate_sigmoid(float x) {
  const Exponential e = parts_of_exponential(-size_at_most(87.0f, magnitude(x)));
  const float scale = power_of_2(e.n), power = fused(scale, e.r + e.rest, scale);
  return nan_of(x, (x > 0 ? 1.0f : power) / (1.0f + power));
}
LOCKSTEP_FUNCTION float gate_tanh(float x) {
  // -(E - 1) / (E + 1) for E = e^(-2 |x|).
  const Exponential e = parts_of_exponential(-2.0f * size_at_most(10.0f, magnitude(x)));
  const float scale = power_of_2(e.n);
  const float less = fused(scale, e.r + e.rest, scale - 1.0f);
  return nan_of(x, with_sign_of(x, less / (2.0f + less)));
}

LOCKSTEP_FUNCTION float sigmoid_slope(float value) { return fused(-value, value, value); }
LOCKSTEP_FUNCTION float tanh_slope(float value) { return fused(-value, value, 1.0f); }

struct LstmUnit {
  float i, f, g, o, c, h;
  LOCKSTEP_FUNCTION LstmUnit(float of_i, float of_f, float of_g, float of_o, float c0)
      : i(gate_sigmoid(of_i)), f(gate_sigmoid(of_f)), g(gate_tanh(of_g)), o(gate_sigmoid(of_o)) {
    c = fused(f, c0, i * g);
    h = o * gate_tanh(c);
  }
};

// Derivatives with respect to the gates' arguments and c0.
struct LstmDiffs {
  float i, f, g, o, c0;
  // Of values of the step, given the derivatives with respect to h and, through later steps, c.
  LOCKSTEP_FUNCTION LstmDiffs(float of_i, float of_f, float of_g, float of_o, float c, float before,
                              float dh, float dc) {
    const float t = gate_tanh(c), all = fused(dh * of_o, tanh_slope(t), dc);
    i = all * of_g * sigmoid_slope(of_i);
    f = all * before * sigmoid_slope(of_f);
    g = all * of_i * tanh_slope(of_g);
    o = dh * t * sigmoid_slope(of_o);
    c0 = all * of_f;
  }
};

// (1 - z) n + z h.
LOCKSTEP_FUNCTION float gru_mix(float z, float n, float h) { return fused(z, h - n, n); }

// Derivatives of gru_mix() with respect to the arguments of z and n, and to h.
struct GruMixDiffs {
  float z, n, h;
  LOCKSTEP_FUNCTION GruMixDiffs(float of_z, float of_n, float h0, float dh)
      : z(dh * (h0 - of_n) * sigmoid_slope(of_z)),
        n(fused(-of_z, dh, dh) * tanh_slope(of_n)),
        h(dh * of_z) {}
};

// value(x), and slope() at the value.
struct RnnTanh {
  LOCKSTEP_FUNCTION float value(float x) const { return gate_tanh(x); }
  LOCKSTEP_FUNCTION float slope(float y) const { return tanh_slope(y); }
};
struct RnnRelu {
  LOCKSTEP_FUNCTION float value(float x) const { return x < 0 ? 0.0f : x; }  // NaN stays NaN
  LOCKSTEP_FUNCTION float slope(float y) const { return y > 0 ? 1.0f : 0.0f; }
};

}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels
