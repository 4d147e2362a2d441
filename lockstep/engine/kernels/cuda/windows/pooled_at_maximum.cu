#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/windows/largest_position.h"
#include "lockstep/engine/kernels/windows/pooled_at_maximum.h"

namespace lockstep::kernels::cuda {
namespace {

struct PooledAtMaximum {
  WindowBox box;
  int64_t elements, results;
  const float *x, *values;
  float* y;
  __device__ void operator()(int64_t i) const {
    const Division at = divide(i, results);
    const int64_t plane = at.quotient * elements;
    const int64_t index = box.largest(x + plane, at.remainder);
    y[i] = index < 0 ? 0.0f : values[plane + index];
  }
};

}  // namespace

Kernel pooled_at_maximum(const PooledAtMaximumProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(p.dst);
  const WindowBox box(src.shape, p.dst, p.window);
  const int64_t elements = box.size[0] * box.size[1] * box.size[2];
  const int64_t results = box.positions[0] * box.positions[1] * box.positions[2];
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, src), input(1, src)}, {output(0, dst)},
               [=, count = dst.shape.elements()](const Bound& b) {
                 launch_each("pooled_at_maximum", count, b.stream,
                             PooledAtMaximum{box, elements, results, b.in(0), b.in(1), b.out(0)});
               });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
