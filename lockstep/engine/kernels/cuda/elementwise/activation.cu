#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/elementwise/activation_functions.h"

namespace lockstep::kernels::cuda {
namespace {

template <class Function>
struct Forward {
  Function f;
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const { y[i] = f.value(x[i]); }
};

template <class Function>
struct Backward {
  Function f;
  const float *at, *dy;
  float* dx;
  __device__ void operator()(int64_t i) const { dx[i] = dy[i] * f.slope(at[i]); }
};

// Works on memory in any order, because no layout of this back end has padding.
template <class Function>
Kernel kernel_of(const Function& f, const TensorSpec& spec, const Operand& kept) {
  const int64_t count = spec.shape.elements();
  Kernel kernel;
  kernel.forward = own_pass({input(0, spec)}, {output(0, spec)}, [=](const Bound& b) {
    launch_each("activation", count, b.stream, Forward<Function>{f, b.in(0), b.out(0)});
  });
  kernel.backward.push_back(
      own_pass({kept, diff_output(0, spec)}, {diff_input(0, spec)}, [=](const Bound& b) {
        launch_each("activation, backward", count, b.stream,
                    Backward<Function>{f, b.in(0), b.in(1), b.out(0)});
      }));
  return kernel;
}

}  // namespace

Kernel activation(const ActivationProblem& p) {
  const Operand kept = backward_reads_dst(p.kind) ? output(0, p.src) : input(0, p.src);
  return with_function(p, [&](const auto& f) { return kernel_of(f, p.src, kept); });
}

}  // namespace lockstep::kernels::cuda
