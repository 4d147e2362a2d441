#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/elementwise/activation_functions.h"

namespace lockstep::kernels::cpu {
namespace {

// Results may take the place of arguments. Clones cannot be templates.
#define LOCKSTEP_LOOPS(Function)                                                            \
  LOCKSTEP_FMA_CLONES void forward(const Function& f, const float* x, float* y, size_t n) { \
    const Function own = f;                                                                 \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; ++i) y[i] = own.value(x[i]);             \
  }                                                                                         \
  LOCKSTEP_FMA_CLONES void backward(const Function& f, const float* at, const float* dy,    \
                                    float* dx, size_t n) {                                  \
    const Function own = f;                                                                 \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; ++i) dx[i] = dy[i] * own.slope(at[i]);   \
  }
LOCKSTEP_LOOPS(LeakyRelu)
LOCKSTEP_LOOPS(Elu)
LOCKSTEP_LOOPS(Gelu)
LOCKSTEP_LOOPS(GeluTanh)
LOCKSTEP_LOOPS(Swish)
LOCKSTEP_LOOPS(Tanh)
LOCKSTEP_LOOPS(Sigmoid)
LOCKSTEP_LOOPS(Softplus)
#undef LOCKSTEP_LOOPS

// Works on memory in any order, including padding.
template <class Function>
Kernel kernel_of(const Function& f, const TensorSpec& spec, const Operand& kept) {
  const size_t count = spec.bytes() / sizeof(float);
  Kernel kernel;
  kernel.forward = own_pass({input(0, spec)}, {output(0, spec)},
                            [=](void* const* r, void* const* w, const RandomContext&) {
                              forward(f, in(r, 0), out(w, 0), count);
                            });
  kernel.backward.push_back(own_pass({kept, diff_output(0, spec)}, {diff_input(0, spec)},
                                     [=](void* const* r, void* const* w, const RandomContext&) {
                                       backward(f, in(r, 0), in(r, 1), out(w, 0), count);
                                     }));
  kernel.forward.in_place = {0};
  kernel.backward.back().in_place = {1, 0};
  kernel.rows_apart = true;
  return kernel;
}

// Padding must stay 0. If f(0) is not 0, the kernel uses row-major memory instead of a layout with
// padding, because only the layout knows where its padding is.
TensorSpec working_spec(const ActivationProblem& p) {
  const TensorSpec plain = p.src.plain();
  return keeps_zero(p.kind) || p.src.bytes() == plain.bytes() ? p.src : plain;
}

}  // namespace

Kernel activation(const ActivationProblem& p) {
  const TensorSpec spec = working_spec(p);
  const Operand kept = backward_reads_dst(p.kind) ? output(0, spec) : input(0, spec);
  return with_function(p, [&](const auto& f) { return kernel_of(f, spec, kept); });
}

}  // namespace lockstep::kernels::cpu
