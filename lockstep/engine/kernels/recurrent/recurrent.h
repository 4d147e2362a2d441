// Recurrent layers over sequences of different lengths.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

enum class RecurrentCell : uint8_t { lstm, gru, rnn };

// x holds n sequences (n x steps x c, row-major f32); row i has lengths[i] valid steps, the first
// ones. `steps` is a capacity: results depend on the valid steps alone, and at other steps y and
// its gradients are 0. h_t is computed from x_t and h_(t-1), which is h0 before the first step.
// `reverse`: from the last valid step to the first. W: weights; U: recurrent weights; b: bias; s:
// sigmoid. Rows of W, U and b are one block of H = `hidden` for each gate, in the order named.
//
// - lstm, gates i, f, g, o: i = s(W_i x + b_i + U_i h), also f and o; g = tanh(W_g x + b_g + U_g
//   h); c' = f c + i g; h' = o tanh(c').
// - gru, gates r, z, n: r = s(W_r x + b_r + U_r h + d_r) with the recurrent bias d, also z;
//   n = tanh(W_n x + b_n + r (U_n h + d_n)), or without `reset_after` tanh(W_n x + b_n + U_n (r h)
//   + d_n); h' = (1 - z) n + z h.
// - rnn: h' = tanh(W x + b + U h), or max(0, ...) with `relu`.
//
// Inputs: x, lengths (n, i32), W (gates H x c), U (gates H x H), b (gates H); of gru: the recurrent
// bias (gates H); h0 (n x H); of lstm: c0 (n x H). Outputs: y (n x steps x H); h (n x H) after the
// last step; of lstm: c (n x H). Where the length is 0, h and c are h0 and c0. A row whose length
// is not 0 to `steps` gives NaN, and adds nothing to gradients.
//
// Gradients of W, U and biases are sums over the valid steps in the order of (row, step).
struct RecurrentProblem {
  TensorSpec x;
  int64_t hidden = 1;
  RecurrentCell cell = RecurrentCell::lstm;
  bool reverse = false;
  bool reset_after = true;
  bool relu = false;
};

constexpr int64_t gates_of(RecurrentCell cell) {
  return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
}

// The operands, by number.
struct RecurrentOperands {
  static constexpr int x = 0, lengths = 1, weights = 2, recurrent_weights = 3, bias = 4;
  int recurrent_bias = -1, h0 = 5, c0 = -1, inputs = 6;
  static constexpr int y = 0, h = 1;
  int c = -1, outputs = 2;

  explicit constexpr RecurrentOperands(RecurrentCell cell) {
    if (cell == RecurrentCell::gru) {
      recurrent_bias = 5;
      h0 = 6;
      inputs = 7;
    } else if (cell == RecurrentCell::lstm) {
      c0 = 6;
      inputs = 7;
      c = 2;
      outputs = 3;
    }
  }
};

}  // namespace lockstep::kernels
