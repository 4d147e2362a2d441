#include "lockstep/engine/kernels/losses/ctc.h"

#include <algorithm>
#include <limits>

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/losses/ctc_row.h"

namespace lockstep::kernels::cpu {
namespace {

struct CtcSizes {
  int64_t rows, steps, classes, most_labels, blank;
  bool zero_infinity;

  // Observation i of the inputs.
  CtcRow row(void* const* r, int64_t i) const {
    const int64_t length = in<int32_t>(r, 1)[i], label_count = in<int32_t>(r, 3)[i];
    return {.logits = in(r, 0) + i * steps * classes,
            .labels = in<int32_t>(r, 2) + i * most_labels,
            .steps = std::clamp<int64_t>(length, 0, steps),
            .label_count = std::clamp<int64_t>(label_count, 0, most_labels),
            .classes = classes,
            .blank = blank};
  }
};

LOCKSTEP_FMA_CLONES float loss_of_row(const CtcRow& row, bool zero_infinity, double* memory) {
  if (!row.has_known_labels()) return std::numeric_limits<float>::quiet_NaN();
  const double total = row.log_total(memory);
  return zero_infinity && total == CtcRow::kImpossible ? 0 : static_cast<float>(-total);
}

LOCKSTEP_FMA_CLONES void gradient_of_row(const CtcRow& row, float factor, double* memory,
                                         float* dx) {
  row.gradient(static_cast<double>(factor), memory, dx);
}

}  // namespace

Kernel ctc(const CtcProblem& p) {
  const TensorSpec logits = p.logits.plain();
  const Shape& x = logits.shape;
  const CtcSizes s{x[0], x[1], x[2], p.most_labels, p.blank, p.zero_infinity};
  const TensorSpec lengths = plain_spec(Shape{s.rows}, DType::i32);
  const TensorSpec labels = plain_spec(Shape{s.rows, s.most_labels}, DType::i32);
  const TensorSpec loss = plain_spec(Shape{s.rows});
  const std::vector<Operand> reads{input(0, logits), input(1, lengths), input(2, labels),
                                   input(3, lengths)};
  const auto bytes = [](int64_t doubles) { return static_cast<size_t>(doubles) * sizeof(double); };
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass_with_scratch(
      reads, {output(0, loss)}, bytes(CtcRow::forward_memory(s.most_labels)),
      [=](void* const* r, void* const* w, void* scratch) {
        for (int64_t i = 0; i < s.rows; ++i) {
          out(w, 0)[i] = loss_of_row(s.row(r, i), s.zero_infinity, static_cast<double*>(scratch));
        }
      });
  std::vector<Operand> backward_reads = reads;
  backward_reads.push_back(diff_output(0, loss));
  kernel.backward.push_back(own_pass_with_scratch(
      std::move(backward_reads), {diff_input(0, logits)},
      bytes(CtcRow::backward_memory(s.steps, s.most_labels, s.classes)),
      [=](void* const* r, void* const* w, void* scratch) {
        for (int64_t i = 0; i < s.rows; ++i) {
          float* const dx = out(w, 0) + i * s.steps * s.classes;
          CtcRow row = s.row(r, i);
          if (!row.has_known_labels()) row.steps = 0;
          std::fill(dx + row.steps * s.classes, dx + s.steps * s.classes, 0.0f);
          gradient_of_row(row, in(r, 4)[i], static_cast<double*>(scratch), dx);
        }
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
