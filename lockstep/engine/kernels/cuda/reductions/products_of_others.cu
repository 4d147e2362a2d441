#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/reductions/products_of_others.h"

namespace lockstep::kernels::cuda {
namespace {

// One thread for each row, in the CPU's order.
struct Row {
  const float* x;
  float* y;
  double* before;
  int64_t n;
  __device__ void operator()(int64_t row) const {
    const int64_t first = row * n;
    double product = 1;
    for (int64_t i = first; i < first + n; ++i) {
      before[i] = product;
      product *= static_cast<double>(x[i]);
    }
    product = 1;
    for (int64_t i = first + n; i-- > first;) {
      y[i] = static_cast<float>(before[i] * product);
      product *= static_cast<double>(x[i]);
    }
  }
};

}  // namespace

Kernel products_of_others(const ProductsOfOthersProblem& p) {
  const TensorSpec src = p.src.plain();
  const int64_t n = src.shape[-1], count = src.shape.elements(), rows = n == 0 ? 0 : count / n;
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, src)}, {output(0, src)},
      [n, rows](const Bound& b) {
        launch_each("products_of_others", rows, b.stream,
                    Row{b.in(0), b.out(0), static_cast<double*>(b.scratch), n});
      },
      static_cast<size_t>(count) * sizeof(double));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
