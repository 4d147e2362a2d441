#include <algorithm>
#include <limits>

#include "lockstep/engine/kernels/cpu/matrices/blocked_products.h"
#include "lockstep/engine/kernels/cpu/matrices/products.h"
#include "lockstep/engine/kernels/cpu/recurrent/cell_loops.h"
#include "lockstep/engine/kernels/cpu/recurrent/recurrence.h"
#include "lockstep/engine/kernels/cpu/recurrent/sequences.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// Memory of a run. Rows of states are in the order of Sequences.
struct ForwardMemory {
  void *sequences, *product;
  float *x, *gates;          // by valid step; gates: if they are not kept
  float *panels, *panels_n;  // panels_n: of the third gate, if its product is separate
  float *h, *recurrent, *scaled;
  size_t bytes;

  ForwardMemory(const Recurrence& r, void* memory) {
    Areas areas(memory);
    sequences = areas.take<std::byte>(static_cast<int64_t>(Sequences::bytes(r.rows, r.steps)));
    product = areas.take<std::byte>(
        static_cast<int64_t>(std::max(product_scratch(), blocked_product_scratch())));
    x = areas.take(r.most() * r.inputs);
    gates = areas.take(r.kept_gates() > 0 ? 0 : r.most() * r.gates);
    panels = areas.take(floats_in_panels(r.gates, r.hidden));
    panels_n = areas.take(r.resets_before() ? floats_in_panels(r.hidden, r.hidden) : 0);
    h = areas.take(r.rows * r.hidden);
    recurrent = areas.take(r.rows * r.gates);
    scaled = areas.take(r.resets_before() ? r.rows * r.hidden : 0);
    bytes = areas.bytes();
  }
};

class ForwardRun {
 public:
  ForwardRun(const Recurrence& r, void* const* reads, void* const* writes, void* scratch)
      : r_(r),
        memory_(r, scratch),
        x_(in(reads, 0)),
        weights_(in(reads, 1)),
        recurrent_weights_(in(reads, 2)),
        bias_(in(reads, 3)),
        recurrent_bias_(r.cell == RecurrentCell::gru ? in(reads, 4) : nullptr),
        h0_(in(reads, r.cell == RecurrentCell::gru ? 5 : 4)),
        c0_(r.cell == RecurrentCell::lstm ? in(reads, 5) : nullptr),
        sequences_(in<int32_t>(reads, r.cell == RecurrentCell::rnn ? 5 : 6), r.rows, r.steps,
                   r.reverse, memory_.sequences),
        y_(out(writes, 0)),
        h_(out(writes, 1)),
        c_(r.cell == RecurrentCell::lstm ? out(writes, 2) : nullptr),
        gates_(r.kept_bytes() > 0 ? out(writes, r.cell == RecurrentCell::lstm ? 3 : 2)
                                  : memory_.gates),
        more_(r.kept_more() > 0 ? r.more(gates_) : nullptr) {}

  void run() {
    if (r_.rows == 0) return;
    const float* x = x_;
    if (sequences_.valid() < r_.most()) {
      sequences_.gather(x_, r_.inputs, memory_.x);
      x = memory_.x;
    }
    cpu::multiply(BlockedProduct{sequences_.valid(), r_.inputs, r_.gates, false, true}, x, weights_,
                  bias_, gates_, memory_.product);
    pack();
    for (int64_t k = 0; k < r_.rows; ++k) {
      std::copy_n(h0_ + sequences_.row(k) * r_.hidden, r_.hidden, memory_.h + k * r_.hidden);
    }
    for (int64_t step = 0; step < sequences_.longest(); ++step) {
      switch (r_.cell) {
        case RecurrentCell::lstm:
          lstm(step);
          break;
        case RecurrentCell::gru:
          r_.reset_after ? gru(step) : gru_with_reset_before(step);
          break;
        case RecurrentCell::rnn:
          rnn(step);
          break;
      }
    }
    finish();
  }

 private:
  // Row k of the order at a step.
  struct StepRow {
    float *gates, *more;
    const float* before;  // h of the step before
    float *y, *h;
    const float *recurrent, *c0;
  };

  int64_t recurrent_gates() const { return r_.resets_before() ? 2 * r_.hidden : r_.gates; }

  void pack() {
    const int64_t first = recurrent_gates();
    pack_rows(recurrent_weights_, first, r_.hidden, memory_.panels);
    if (!r_.resets_before()) return;
    pack_rows(recurrent_weights_ + first * r_.hidden, r_.hidden, r_.hidden, memory_.panels_n);
  }

  // The recurrent part of all rows at a step, from states.
  void multiply(int64_t rows, const float* states, const float* panels, int64_t gates,
                const float* bias) {
    multiply_panels({rows, r_.hidden, gates}, states, panels, bias, memory_.recurrent,
                    memory_.product);
  }

  // Calls body(row, k) for each row at a step; `gates`: those of the recurrent part.
  template <class Body>
  void each_row(int64_t step, int64_t gates, const Body& body) {
    for (int64_t k = 0; k < sequences_.rows_at(step); ++k) {
      const int64_t row = sequences_.row(k), time = sequences_.time(row, step),
                    valid = sequences_.first(row) + time, back = r_.reverse ? 1 : -1;
      float* const y = y_ + (row * r_.steps + time) * r_.hidden;
      StepRow at{.gates = gates_ + valid * r_.gates,
                 .more = more_ ? more_ + valid * r_.hidden : nullptr,
                 .before = step == 0 ? h0_ + row * r_.hidden : y + back * r_.hidden,
                 .y = y,
                 .h = memory_.h + k * r_.hidden,
                 .recurrent = memory_.recurrent + k * gates,
                 .c0 = nullptr};
      if (c0_) at.c0 = step == 0 ? c0_ + row * r_.hidden : at.more + back * r_.hidden;
      body(at, k);
    }
  }

  void keep_state(const StepRow& at) { std::copy_n(at.h, r_.hidden, at.y); }

  void lstm(int64_t step) {
    multiply(sequences_.rows_at(step), memory_.h, memory_.panels, r_.gates, nullptr);
    each_row(step, r_.gates, [&](const StepRow& at, int64_t) {
      run_units(LstmForward{r_.hidden, at.gates, at.recurrent, at.c0, at.more, at.h});
      keep_state(at);
    });
  }

  void gru(int64_t step) {
    multiply(sequences_.rows_at(step), memory_.h, memory_.panels, r_.gates, recurrent_bias_);
    each_row(step, r_.gates, [&](const StepRow& at, int64_t) {
      run_units(GruForward{r_.hidden, at.gates, at.recurrent, at.before, at.more, at.h});
      keep_state(at);
    });
  }

  void gru_with_reset_before(int64_t step) {
    const int64_t rows = sequences_.rows_at(step), two = 2 * r_.hidden;
    multiply(rows, memory_.h, memory_.panels, two, recurrent_bias_);
    each_row(step, two, [&](const StepRow& at, int64_t k) {
      run_units(
          GruReset{r_.hidden, at.gates, at.recurrent, at.before, memory_.scaled + k * r_.hidden});
    });
    multiply(rows, memory_.scaled, memory_.panels_n, r_.hidden, recurrent_bias_ + two);
    each_row(step, r_.hidden, [&](const StepRow& at, int64_t) {
      run_units(GruUpdate{r_.hidden, at.gates, at.recurrent, at.before, at.h});
      keep_state(at);
    });
  }

  void rnn(int64_t step) {
    multiply(sequences_.rows_at(step), memory_.h, memory_.panels, r_.gates, nullptr);
    each_row(step, r_.gates, [&](const StepRow& at, int64_t) {
      run_units(RnnForward{r_.hidden, r_.relu, at.gates, at.recurrent, at.h});
      keep_state(at);
    });
  }

  void finish() {
    constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
    sequences_.clear_rest(y_, r_.hidden);
    for (int64_t k = 0; k < r_.rows; ++k) {
      const int64_t row = sequences_.row(k), to = row * r_.hidden;
      std::copy_n(memory_.h + k * r_.hidden, r_.hidden, h_ + to);
      if (c_) {
        const int64_t length = sequences_.length(row);
        const float* const last =
            length == 0
                ? c0_ + to
                : more_ + (sequences_.first(row) + sequences_.time(row, length - 1)) * r_.hidden;
        std::copy_n(last, r_.hidden, c_ + to);
      }
      if (!sequences_.is_outside(row)) continue;
      std::fill_n(y_ + to * r_.steps, r_.steps * r_.hidden, kNothing);
      std::fill_n(h_ + to, r_.hidden, kNothing);
      if (c_) std::fill_n(c_ + to, r_.hidden, kNothing);
    }
  }

  const Recurrence& r_;
  const ForwardMemory memory_;
  const float *const x_, *const weights_, *const recurrent_weights_,
                                              *const bias_, *const recurrent_bias_, *const h0_,
                                                                                        *const c0_;
  const Sequences sequences_;
  float *const y_, *const h_, *const c_, *const gates_, *const more_;
};

}  // namespace

void run_forward(const Recurrence& r, void* const* reads, void* const* writes, void* scratch) {
  ForwardRun(r, reads, writes, scratch).run();
}

size_t forward_scratch(const Recurrence& r) { return ForwardMemory(r, nullptr).bytes; }

}  // namespace lockstep::kernels::cpu
