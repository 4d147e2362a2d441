#include "lockstep/engine/kernels/relu.h"

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

// Works on the memory as it lies: padding is zero and stays so.
Kernel relu(const ReluProblem& p) {
  const size_t count = p.src.bytes() / sizeof(float);
  Kernel kernel;
  kernel.forward = own_pass({input(0, p.src)}, {output(0, p.src)},
                            [count](void* const* r, void* const* w, const StepInfo&) {
                              relu(in(r, 0), out(w, 0), count);
                            });
  kernel.backward.push_back(own_pass({output(0, p.src), diff_output(0, p.src)},
                                     {diff_input(0, p.src)},
                                     [count](void* const* r, void* const* w, const StepInfo&) {
                                       relu_backward(in(r, 0), in(r, 1), out(w, 0), count);
                                     }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
