// The operands of the passes of recurrent layers, the same for all back ends.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/recurrent/recurrent.h"

namespace lockstep::kernels {

// Forward reads: x, W, U, b; of gru the recurrent bias; h0; of lstm c0; the lengths. It writes y,
// h; of lstm c; what is kept, if that has bytes. Backward reads all that forward reads, then y, dy,
// dh; of lstm dc; what is kept. It writes the derivatives of what forward reads but for the
// lengths.
struct RecurrentPasses {
  std::vector<Operand> forward_reads, forward_writes, backward_reads, backward_writes;

  RecurrentPasses(const RecurrentProblem& p, size_t kept_bytes) {
    const RecurrentOperands at(p.cell);
    const auto floats = [](Shape shape) {
      return TensorSpec{std::move(shape), DType::f32, nullptr};
    };
    const Shape& x = p.x.shape;
    const int64_t gates = gates_of(p.cell) * p.hidden;
    const TensorSpec state = floats({x[0], p.hidden}), bias = floats({gates}),
                     y = floats({x[0], x[1], p.hidden});
    const auto add = [&](int number, const TensorSpec& spec) {
      if (number < 0) return;
      forward_reads.push_back(input(number, spec));
      backward_writes.push_back(diff_input(number, spec));
    };
    add(at.x, p.x.plain());
    add(at.weights, floats({gates, x[2]}));
    add(at.recurrent_weights, floats({gates, p.hidden}));
    add(at.bias, bias);
    add(at.recurrent_bias, bias);
    add(at.h0, state);
    add(at.c0, state);
    forward_reads.push_back(input(at.lengths, {Shape{x[0]}, DType::i32, nullptr}));
    forward_writes = {output(at.y, y), output(at.h, state)};
    backward_reads = forward_reads;
    backward_reads.insert(backward_reads.end(),
                          {output(at.y, y), diff_output(at.y, y), diff_output(at.h, state)});
    if (at.c >= 0) {
      forward_writes.push_back(output(at.c, state));
      backward_reads.push_back(diff_output(at.c, state));
    }
    if (kept_bytes == 0) return;
    forward_writes.push_back(workspace(kept_bytes));
    backward_reads.push_back(workspace(kept_bytes));
  }
};

}  // namespace lockstep::kernels
