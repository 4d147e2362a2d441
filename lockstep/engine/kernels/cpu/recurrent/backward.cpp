#include <algorithm>

#include "lockstep/engine/kernels/cpu/matrices/blocked_products.h"
#include "lockstep/engine/kernels/cpu/matrices/products.h"
#include "lockstep/engine/kernels/cpu/recurrent/cell_loops.h"
#include "lockstep/engine/kernels/cpu/recurrent/recurrence.h"
#include "lockstep/engine/kernels/cpu/recurrent/sequences.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

// Memory of a run. Arrays of steps hold the valid ones in their order, those of rows the rows in
// the order of Sequences.
struct BackwardMemory {
  void *sequences, *product;
  float *x, *states;  // by step
  float* d;           // by step: with respect to the gates' arguments
  // By step: with respect to the recurrent parts, where they are other numbers or lie apart. Of a
  // gru that resets before: of r and z, and of n.
  float *recurrent_d, *recurrent_n;
  float* scaled;  // by step: r h, if the reset is before the product
  float* dx;
  float *panels, *panels_n;
  float *dh, *dc, *direct, *at_step, *at_step_n;  // by row
  double* sums;
  size_t bytes;

  BackwardMemory(const Recurrence& r, void* memory) {
    const bool gru = r.cell == RecurrentCell::gru, before = r.resets_before();
    const int64_t by_step = r.most(), wide = before ? 2 * r.hidden : r.gates;
    Areas areas(memory);
    sequences = areas.take<std::byte>(static_cast<int64_t>(Sequences::bytes(r.rows, r.steps)));
    product = areas.take<std::byte>(
        static_cast<int64_t>(std::max(product_scratch(), blocked_product_scratch())));
    x = areas.take(by_step * r.inputs);
    states = areas.take(by_step * r.hidden);
    d = areas.take(by_step * r.gates);
    recurrent_d = areas.take(gru ? by_step * wide : 0);
    recurrent_n = areas.take(before ? by_step * r.hidden : 0);
    scaled = areas.take(before ? by_step * r.hidden : 0);
    dx = areas.take(by_step * r.inputs);
    panels = areas.take(floats_in_panels(r.hidden, wide));
    panels_n = areas.take(before ? floats_in_panels(r.hidden, r.hidden) : 0);
    dh = areas.take(r.rows * r.hidden);
    dc = areas.take(r.rows * r.hidden);
    direct = areas.take(gru ? r.rows * r.hidden : 0);
    at_step = areas.take(r.rows * wide);
    at_step_n = areas.take(before ? r.rows * r.hidden : 0);
    sums = areas.take<double>(r.gates);
    bytes = areas.bytes();
  }
};

// Operands of the pass, in the order of RecurrentPasses.
struct BackwardOperands {
  const float *x, *weights, *recurrent_weights, *h0, *c0 = nullptr;
  const int32_t* lengths;
  const float *y, *dy, *dh, *dc = nullptr, *gates = nullptr;
  float *dx, *dweights, *drecurrent_weights, *dbias, *drecurrent_bias = nullptr, *dh0,
                                                     *dc0 = nullptr;

  BackwardOperands(const Recurrence& r, void* const* reads, void* const* writes) {
    const bool gru = r.cell == RecurrentCell::gru, lstm = r.cell == RecurrentCell::lstm;
    int read = 4, write = 4;
    x = in(reads, 0);
    weights = in(reads, 1);
    recurrent_weights = in(reads, 2);
    if (gru) ++read;
    h0 = in(reads, read++);
    if (lstm) c0 = in(reads, read++);
    lengths = in<int32_t>(reads, read++);
    y = in(reads, read++);
    dy = in(reads, read++);
    dh = in(reads, read++);
    if (lstm) dc = in(reads, read++);
    if (r.kept_bytes() > 0) gates = in(reads, read++);
    dx = out(writes, 0);
    dweights = out(writes, 1);
    drecurrent_weights = out(writes, 2);
    dbias = out(writes, 3);
    if (gru) drecurrent_bias = out(writes, write++);
    dh0 = out(writes, write++);
    if (lstm) dc0 = out(writes, write++);
  }
};

class BackwardRun {
 public:
  BackwardRun(const Recurrence& r, void* const* reads, void* const* writes, void* scratch)
      : r_(r),
        memory_(r, scratch),
        of_(r, reads, writes),
        sequences_(of_.lengths, r.rows, r.steps, r.reverse, memory_.sequences),
        more_(r.kept_more() > 0 ? of_.gates + r.most() * r.kept_gates() : nullptr) {}

  void run() {
    pack();
    sort(of_.dh, memory_.dh);
    if (of_.dc) sort(of_.dc, memory_.dc);
    for (int64_t step = sequences_.longest() - 1; step >= 0; --step) {
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
    unsort(memory_.dh, of_.dh0);
    if (of_.dc0) unsort(memory_.dc, of_.dc0);
    gradient_of_x();
    gradients_of_parameters();
  }

 private:
  // Row k of the order at a step.
  struct StepRow {
    const float *gates, *more, *y, *dy;
    const float *before, *c0;  // h and c of the step before
    float *d, *dh, *dc, *direct, *at_step;
    int64_t valid;
  };

  int64_t wide() const { return r_.resets_before() ? 2 * r_.hidden : r_.gates; }

  void pack() {
    pack_columns(of_.recurrent_weights, wide(), r_.hidden, memory_.panels);
    if (!r_.resets_before()) return;
    pack_columns(of_.recurrent_weights + wide() * r_.hidden, r_.hidden, r_.hidden,
                 memory_.panels_n);
  }

  // From the order of rows to that of Sequences, and back.
  void sort(const float* from, float* to) const {
    for (int64_t k = 0; k < r_.rows; ++k) {
      std::copy_n(from + sequences_.row(k) * r_.hidden, r_.hidden, to + k * r_.hidden);
    }
  }
  void unsort(const float* from, float* to) const {
    for (int64_t k = 0; k < r_.rows; ++k) {
      std::copy_n(from + k * r_.hidden, r_.hidden, to + sequences_.row(k) * r_.hidden);
    }
  }

  template <class Body>
  void each_row(int64_t step, const Body& body) {
    for (int64_t k = 0; k < sequences_.rows_at(step); ++k) {
      const int64_t row = sequences_.row(k), time = sequences_.time(row, step),
                    valid = sequences_.first(row) + time, back = r_.reverse ? 1 : -1,
                    in_y = (row * r_.steps + time) * r_.hidden;
      const float* const y = of_.y + in_y;
      StepRow at{.gates = of_.gates + valid * r_.kept_gates(),
                 .more = more_ ? more_ + valid * r_.hidden : nullptr,
                 .y = y,
                 .dy = of_.dy + in_y,
                 .before = step == 0 ? of_.h0 + row * r_.hidden : y + back * r_.hidden,
                 .c0 = nullptr,
                 .d = memory_.d + valid * r_.gates,
                 .dh = memory_.dh + k * r_.hidden,
                 .dc = memory_.dc + k * r_.hidden,
                 .direct = memory_.direct + k * r_.hidden,
                 .at_step = memory_.at_step + k * wide(),
                 .valid = valid};
      if (of_.c0) at.c0 = step == 0 ? of_.c0 + row * r_.hidden : at.more + back * r_.hidden;
      body(at, k);
    }
  }

  // to (rows at the step x hidden) = d (... x terms) times a matrix in panels.
  void multiply_back(int64_t step, int64_t terms, const float* d, const float* panels, float* to) {
    multiply_panels({sequences_.rows_at(step), terms, r_.hidden}, d, panels, nullptr, to,
                    memory_.product);
  }

  void lstm(int64_t step) {
    each_row(step, [&](const StepRow& at, int64_t) {
      run_units(LstmBackward{r_.hidden, at.gates, at.more, at.c0, at.dy, at.dh, at.dc, at.d});
      std::copy_n(at.d, r_.gates, at.at_step);
    });
    multiply_back(step, r_.gates, memory_.at_step, memory_.panels, memory_.dh);
  }

  void gru(int64_t step) {
    each_row(step, [&](const StepRow& at, int64_t) {
      float* const recurrent_d = memory_.recurrent_d + at.valid * r_.gates;
      run_units(GruBackward{r_.hidden, at.gates, at.more, at.before, at.dy, at.dh, at.d,
                            recurrent_d, at.direct});
      std::copy_n(recurrent_d, r_.gates, at.at_step);
    });
    multiply_back(step, r_.gates, memory_.at_step, memory_.panels, memory_.dh);
    add_direct(step);
  }

  void gru_with_reset_before(int64_t step) {
    const int64_t h = r_.hidden;
    each_row(step, [&](const StepRow& at, int64_t k) {
      run_units(GruUpdateBackward{h, at.gates, at.before, at.dy, at.dh, at.d, at.direct});
      std::copy_n(at.d + 2 * h, h, memory_.at_step_n + k * h);
      std::copy_n(at.d + 2 * h, h, memory_.recurrent_n + at.valid * h);
      multiply(at.gates, at.before, memory_.scaled + at.valid * h, static_cast<size_t>(h));
    });
    // With respect to r h; the rows of dh are used up.
    multiply_back(step, h, memory_.at_step_n, memory_.panels_n, memory_.dh);
    each_row(step, [&](const StepRow& at, int64_t) {
      run_units(GruResetBackward{h, at.gates, at.before, at.dh, at.d, at.direct});
      std::copy_n(at.d, 2 * h, at.at_step);
      std::copy_n(at.d, 2 * h, memory_.recurrent_d + at.valid * 2 * h);
    });
    multiply_back(step, 2 * h, memory_.at_step, memory_.panels, memory_.dh);
    add_direct(step);
  }

  void rnn(int64_t step) {
    each_row(step, [&](const StepRow& at, int64_t) {
      run_units(RnnBackward{r_.hidden, r_.relu, at.y, at.dy, at.dh, at.d});
      std::copy_n(at.d, r_.gates, at.at_step);
    });
    multiply_back(step, r_.gates, memory_.at_step, memory_.panels, memory_.dh);
  }

  void add_direct(int64_t step) {
    add(memory_.dh, memory_.direct, memory_.dh,
        static_cast<size_t>(sequences_.rows_at(step) * r_.hidden));
  }

  void gradient_of_x() {
    multiply(BlockedProduct{sequences_.valid(), r_.gates, r_.inputs}, memory_.d, of_.weights,
             nullptr, memory_.dx, memory_.product);
    sequences_.spread(memory_.dx, r_.inputs, of_.dx);
  }

  // Sums over the valid steps of d^T times values.
  void sum_products_of(const float* d, int64_t gates, const float* values, int64_t width,
                       float* to) {
    multiply(BlockedProduct{gates, sequences_.valid(), width, true, false}, d, values, nullptr, to,
             memory_.product);
  }

  void gradients_of_parameters() {
    const int64_t h = r_.hidden, valid = sequences_.valid();
    sequences_.gather(of_.x, r_.inputs, memory_.x);
    sum_products_of(memory_.d, r_.gates, memory_.x, r_.inputs, of_.dweights);
    sum_of_steps(memory_.d, valid, r_.gates, memory_.sums, of_.dbias);
    sequences_.gather_states(of_.y, of_.h0, h, memory_.states);
    const float* const d = r_.cell == RecurrentCell::gru ? memory_.recurrent_d : memory_.d;
    sum_products_of(d, wide(), memory_.states, h, of_.drecurrent_weights);
    if (r_.resets_before()) {
      sum_products_of(memory_.recurrent_n, h, memory_.scaled, h,
                      of_.drecurrent_weights + wide() * h);
      std::copy_n(of_.dbias, r_.gates, of_.drecurrent_bias);
    } else if (of_.drecurrent_bias) {
      sum_of_steps(d, valid, r_.gates, memory_.sums, of_.drecurrent_bias);
    }
  }

  const Recurrence& r_;
  const BackwardMemory memory_;
  const BackwardOperands of_;
  const Sequences sequences_;
  const float* const more_;
};

}  // namespace

void run_backward(const Recurrence& r, void* const* reads, void* const* writes, void* scratch) {
  BackwardRun(r, reads, writes, scratch).run();
}

size_t backward_scratch(const Recurrence& r) { return BackwardMemory(r, nullptr).bytes; }

}  // namespace lockstep::kernels::cpu
