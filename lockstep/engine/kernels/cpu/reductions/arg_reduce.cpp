#include "lockstep/engine/kernels/reductions/arg_reduce.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/reductions/arg_axis.h"

namespace lockstep::kernels::cpu {
namespace {

// Columns, or lanes of a row, that are searched together.
constexpr int64_t kColumnsOfSearch = 256, kLanesOfSearch = 16;

// Takes the elements of a row of `count` columns at position k that win.
LOCKSTEP_CLONES void take_winners(bool smallest, const float* x, int64_t k, int64_t count,
                                  float* best, int64_t* at) {
  const float sign = smallest ? -1.0f : 1.0f;
  for (int64_t i = 0; i < count; ++i) {
    const bool taken = (sign * x[i] > sign * best[i]) | ((x[i] != x[i]) & (best[i] == best[i]));
    best[i] = taken ? x[i] : best[i];
    at[i] = taken ? k : at[i];
  }
}

void search_columns(const SplitAxis& a, bool smallest, const float* x, int64_t* dst) {
  for (int64_t o = 0; o < a.outer; ++o, x += a.size * a.inner) {
    for (int64_t c = 0; c < a.inner; c += kColumnsOfSearch) {
      const int64_t count = std::min(kColumnsOfSearch, a.inner - c);
      float best[kColumnsOfSearch];
      std::copy_n(x + c, count, best);
      std::fill_n(dst, count, 0);
      for (int64_t k = 1; k < a.size; ++k) {
        take_winners(smallest, x + k * a.inner + c, k, count, best, dst);
      }
      dst += count;
    }
  }
}

// Lane l searches elements l, l + kLanesOfSearch, ...; then the lanes are compared.
int64_t search_row(bool smallest, const float* x, int64_t size) {
  float best[kLanesOfSearch];
  int64_t at[kLanesOfSearch];
  const int64_t lanes = std::min(kLanesOfSearch, size);
  std::copy_n(x, lanes, best);
  std::fill_n(at, lanes, 0);
  for (int64_t k = lanes; k < size; k += lanes) {
    take_winners(smallest, x + k, k, std::min(lanes, size - k), best, at);
  }
  int64_t first = 0, index = at[0];
  for (int64_t l = 1; l < lanes; ++l) {
    const float mine = best[l], other = best[first];
    const bool same = mine == other || (mine != mine && other != other);
    if (wins(smallest, mine, other) || (same && at[l] + l < index)) {
      first = l;
      index = at[l] + l;
    }
  }
  return index;
}

}  // namespace

Kernel arg_reduce(const ArgReduceProblem& p) {
  const SplitAxis axis = arg_axis(p);
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, p.src.plain())},
               {output(0, plain_spec(without_axis(p.src.shape, p.axis), DType::i64))},
               [axis, smallest = p.smallest](void* const* r, void* const* w, const RandomContext&) {
                 const float* const x = in(r, 0);
                 auto* const dst = out<int64_t>(w, 0);
                 if (axis.inner > 1) return search_columns(axis, smallest, x, dst);
                 for (int64_t o = 0; o < axis.outer * axis.inner; ++o) {
                   dst[o] = search_row(smallest, x + o * axis.size, axis.size);
                 }
               });
  kernel.rows_apart = p.axis > 0;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
