#include "lockstep/engine/kernels/reductions/cumulative_sum.h"

#include <algorithm>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/shapes/split_axis.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kColumnsOfSum = 512;
// Rows whose sums are added together, to hide the latency of additions.
constexpr int64_t kRows = 8;

LOCKSTEP_CLONES void add_row(const float* x, int64_t count, double* sums, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += static_cast<double>(x[i]);
    y[i] = static_cast<float>(sums[i]);
  }
}

// `step` is -1 for reverse sums, which begin at the last element.
void sum_columns(const SplitAxis& a, int64_t step, const float* x, float* y) {
  const int64_t whole = a.size * a.inner, begin = step < 0 ? whole - a.inner : 0;
  for (int64_t o = 0; o < a.outer; ++o, x += whole, y += whole) {
    for (int64_t c = 0; c < a.inner; c += kColumnsOfSum) {
      const int64_t count = std::min(kColumnsOfSum, a.inner - c);
      double sums[kColumnsOfSum];
      std::fill_n(sums, count, 0.0);
      for (int64_t k = 0, at = begin + c; k < a.size; ++k, at += step * a.inner) {
        add_row(x + at, count, sums, y + at);
      }
    }
  }
}

void sum_rows(const SplitAxis& a, int64_t step, const float* x, float* y) {
  const int64_t begin = step < 0 ? a.size - 1 : 0;
  for (int64_t o = 0; o < a.outer; o += kRows) {
    const int64_t rows = std::min(kRows, a.outer - o);
    double sums[kRows] = {};
    for (int64_t k = 0, at = o * a.size + begin; k < a.size; ++k, at += step) {
      for (int64_t r = 0; r < rows; ++r) {
        sums[r] += static_cast<double>(x[at + r * a.size]);
        y[at + r * a.size] = static_cast<float>(sums[r]);
      }
    }
  }
}

}  // namespace

Kernel cumulative_sum(const CumulativeSumProblem& p) {
  const SplitAxis axis = split_axis("cumsum", p.src.shape, p.axis);
  const TensorSpec src = p.src.plain();
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, plain_spec(src.shape))},
                            [axis, step = p.reverse ? int64_t{-1} : int64_t{1}](
                                void* const* r, void* const* w, const RandomContext&) {
                              const auto sum = axis.inner == 1 ? sum_rows : sum_columns;
                              sum(axis, step, in(r, 0), out(w, 0));
                            });
  kernel.rows_apart = p.axis > 0;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
