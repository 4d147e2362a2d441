#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/shapes/arange.h"

namespace lockstep::kernels::cuda {
namespace {

struct Fill {
  ArangeProblem p;
  float* y;
  __device__ void operator()(int64_t i) const { y[i] = arange_element(p, i); }
};

}  // namespace

Kernel arange(const ArangeProblem& p) {
  Kernel kernel;
  kernel.forward = own_pass({}, {output(0, plain_spec(Shape{p.count}))}, [p](const Bound& b) {
    launch_each("arange", p.count, b.stream, Fill{p, b.out(0)});
  });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
