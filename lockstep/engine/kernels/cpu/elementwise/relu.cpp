#include "lockstep/engine/kernels/elementwise/relu.h"

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

// Works on memory in any order. Padding is 0 and stays 0.
Kernel relu(const ReluProblem& p) {
  const size_t count = p.src.bytes() / size_of(p.src.dtype);
  return with_elements(p.src.dtype, [&]<class T>(T*) {
    Kernel kernel;
    kernel.forward = own_pass({input(0, p.src)}, {output(0, p.src)},
                              [count](void* const* r, void* const* w, const RandomContext&) {
                                relu(in<T>(r, 0), out<T>(w, 0), count);
                              });
    kernel.backward.push_back(
        own_pass({output(0, p.src), diff_output(0, p.src)}, {diff_input(0, p.src)},
                 [count](void* const* r, void* const* w, const RandomContext&) {
                   relu_backward(in<T>(r, 0), in<T>(r, 1), out<T>(w, 0), count);
                 }));
    kernel.forward.in_place = {0};
    kernel.backward.back().in_place = {1, 0};
    kernel.rows_apart = true;
    return kernel;
  });
}

}  // namespace lockstep::kernels::cpu
