// What the passes of recurrent layers share: sizes, kept values, memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/cpu/matrices/panels.h"
#include "lockstep/engine/kernels/recurrent/recurrent.h"

namespace lockstep::kernels::cpu {

struct Recurrence {
  int64_t rows, steps, inputs, hidden;
  int64_t gates;  // numbers of all gates of a row: those of each gate times `hidden`
  RecurrentCell cell;
  bool reverse, reset_after, relu;

  explicit Recurrence(const RecurrentProblem& p)
      : rows(p.x.shape[0]),
        steps(p.x.shape[1]),
        inputs(p.x.shape[2]),
        hidden(p.hidden),
        gates(gates_of(p.cell) * p.hidden),
        cell(p.cell),
        reverse(p.reverse),
        reset_after(p.reset_after),
        relu(p.relu) {}

  // Valid steps at most.
  int64_t most() const { return rows * steps; }
  // Whether the reset gate scales the state before its product.
  bool resets_before() const { return cell == RecurrentCell::gru && !reset_after; }
  // Floats of a valid step that the forward pass keeps: the values of the gates; then of lstm c, of
  // gru the product that the reset gate scales, if it does.
  int64_t kept_gates() const { return cell == RecurrentCell::rnn ? 0 : gates; }
  int64_t kept_more() const { return cell == RecurrentCell::rnn || resets_before() ? 0 : hidden; }
  size_t kept_bytes() const {
    return static_cast<size_t>(most() * (kept_gates() + kept_more())) * sizeof(float);
  }
  float* more(float* kept) const { return kept + most() * kept_gates(); }
};

// Arrays one after another in a block of memory. Without memory only their size is counted.
class Areas {
 public:
  explicit Areas(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  template <class T = float>
  T* take(int64_t count) {
    std::byte* const at = memory_ ? memory_ + bytes_ : nullptr;
    const size_t size = static_cast<size_t>(count) * sizeof(T);
    bytes_ += (size + cache_line - 1) / cache_line * cache_line;
    return reinterpret_cast<T*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* const memory_;
  size_t bytes_ = 0;
};

// Floats of panels (matrices/panels.h).
constexpr int64_t floats_in_panels(int64_t vectors, int64_t terms) {
  return panels_of(vectors) * kPanel * terms;
}
// The rows of a matrix of `terms` columns as panels for a product with the transpose.
void pack_rows(const float* matrix, int64_t rows, int64_t terms, float* panels);
// The columns of a matrix of `terms` rows as panels for a product with the matrix.
void pack_columns(const float* matrix, int64_t terms, int64_t columns, float* panels);

// Each reads and writes the operands of its pass in the order of RecurrentPasses.
void run_forward(const Recurrence& r, void* const* reads, void* const* writes, void* scratch);
size_t forward_scratch(const Recurrence& r);
void run_backward(const Recurrence& r, void* const* reads, void* const* writes, void* scratch);
size_t backward_scratch(const Recurrence& r);

}  // namespace lockstep::kernels::cpu
