#include "lockstep/engine/kernels/recurrent/recurrent.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cpu/recurrent/recurrence.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/recurrent/operands.h"

namespace lockstep::kernels::cpu {

void pack_rows(const float* matrix, int64_t rows, int64_t terms, float* panels) {
  for (int64_t v = 0; v < rows; v += kPanel) {
    pack_panel(matrix + v * terms, terms, terms, std::min(kPanel, rows - v), panels + v * terms);
  }
}

void pack_columns(const float* matrix, int64_t terms, int64_t columns, float* panels) {
  for (int64_t k = 0; k < terms; ++k, matrix += columns) {
    for (int64_t v = 0; v < columns; v += kPanel) {
      float* const to = panels + v * terms + k * kPanel;
      if (columns - v >= kPanel) {
        std::memcpy(to, matrix + v, kPanel * sizeof(float));
        continue;
      }
      std::fill_n(to, kPanel, 0.0f);
      std::copy_n(matrix + v, columns - v, to);
    }
  }
}

namespace {

// Throws Unsupported if the sizes of the arrays cannot be counted.
void check_countable(const Recurrence& r) {
  const int64_t widest = std::max({r.gates, r.inputs, int64_t{1}});
  if (widest <= kMostInPanels / std::max<int64_t>({r.most(), widest, 1})) return;
  throw Unsupported("[kernels] a recurrent op does not support " + std::to_string(r.rows) +
                    " sequences of " + std::to_string(r.steps) + " steps with " +
                    std::to_string(r.inputs) + " channels and " + std::to_string(r.hidden) +
                    " units");
}

}  // namespace

Kernel recurrent(const RecurrentProblem& p) {
  const Recurrence r(p);
  check_countable(r);
  RecurrentPasses passes(p, r.kept_bytes());
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass_with_scratch(
      std::move(passes.forward_reads), std::move(passes.forward_writes), forward_scratch(r),
      [r](void* const* in, void* const* out, void* scratch) { run_forward(r, in, out, scratch); });
  kernel.backward.push_back(own_pass_with_scratch(
      std::move(passes.backward_reads), std::move(passes.backward_writes), backward_scratch(r),
      [r](void* const* in, void* const* out, void* scratch) {
        run_backward(r, in, out, scratch);
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
