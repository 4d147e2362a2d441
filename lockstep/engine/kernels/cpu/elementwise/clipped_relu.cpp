#include "lockstep/engine/kernels/elementwise/clipped_relu.h"

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

// Works on memory in any order. Padding is 0 and stays 0.
Kernel clipped_relu(const ClippedReluProblem& p) {
  const size_t count = p.src.bytes() / sizeof(float);
  const auto ceiling = static_cast<float>(p.ceiling);
  Kernel kernel;
  kernel.forward = own_pass({input(0, p.src)}, {output(0, p.src)},
                            [=](void* const* r, void* const* w, const RandomContext&) {
                              clipped_relu(in(r, 0), ceiling, out(w, 0), count);
                            });
  kernel.backward.push_back(
      own_pass({output(0, p.src), diff_output(0, p.src)}, {diff_input(0, p.src)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 clipped_relu_backward(in(r, 0), ceiling, in(r, 1), out(w, 0), count);
               }));
  kernel.forward.in_place = {0};
  kernel.backward.back().in_place = {1, 0};
  kernel.rows_apart = true;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
