#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/reductions/cumulative_sum.h"
#include "lockstep/engine/kernels/shapes/split_axis.h"

namespace lockstep::kernels::cuda {
namespace {

// The sums along the axis for one index of the others, one after the other as on the CPU.
struct CumulativeSum {
  const float* x;
  float* y;
  SplitAxis axis;
  bool reverse;
  __device__ void operator()(int64_t n) const {
    const Division at = divide(n, axis.inner);
    const int64_t first = at.quotient * axis.size * axis.inner + at.remainder;
    double sum = 0;
    for (int64_t k = 0; k < axis.size; ++k) {
      const int64_t i = first + (reverse ? axis.size - 1 - k : k) * axis.inner;
      sum += static_cast<double>(x[i]);
      y[i] = static_cast<float>(sum);
    }
  }
};

}  // namespace

Kernel cumulative_sum(const CumulativeSumProblem& p) {
  const SplitAxis axis = split_axis("cumsum", p.src.shape, p.axis);
  const TensorSpec src = p.src.plain();
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, plain_spec(src.shape))},
                            [axis, reverse = p.reverse](const Bound& b) {
                              const int64_t sums = axis.size == 0 ? 0 : axis.outer * axis.inner;
                              launch_each("cumulative_sum", sums, b.stream,
                                          CumulativeSum{b.in(0), b.out(0), axis, reverse});
                            });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
