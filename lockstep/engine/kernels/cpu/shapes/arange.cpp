#include "lockstep/engine/kernels/shapes/arange.h"

#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

LOCKSTEP_FMA_CLONES void fill(const ArangeProblem& p, float* y) {
  for (int64_t i = 0; i < p.count; ++i) y[i] = arange_element(p, i);
}

}  // namespace

Kernel arange(const ArangeProblem& p) {
  Kernel kernel;
  kernel.forward =
      own_pass({}, {output(0, plain_spec(Shape{p.count}))},
               [p](void* const*, void* const* w, const RandomContext&) { fill(p, out(w, 0)); });
  return kernel;
}

}  // namespace lockstep::kernels::cpu
