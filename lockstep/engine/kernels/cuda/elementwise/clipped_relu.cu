#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/elementwise/clipped_relu.h"

namespace lockstep::kernels::cuda {
namespace {

struct Forward {
  const float* x;
  float ceiling;
  float* y;
  __device__ void operator()(int64_t i) const {
    const float above = x[i] > 0 ? x[i] : (x[i] != x[i] ? x[i] : 0.0f);  // keeps NaN
    y[i] = above > ceiling ? ceiling : above;
  }
};

struct Backward {
  const float* y;
  float ceiling;
  const float* dy;
  float* dx;
  __device__ void operator()(int64_t i) const { dx[i] = y[i] > 0 && y[i] < ceiling ? dy[i] : 0.0f; }
};

}  // namespace

// Works on memory in any order.
Kernel clipped_relu(const ClippedReluProblem& p) {
  const int64_t count = p.src.shape.elements();
  const auto ceiling = static_cast<float>(p.ceiling);
  Kernel kernel;
  kernel.forward = own_pass({input(0, p.src)}, {output(0, p.src)}, [=](const Bound& b) {
    launch_each("clipped relu", count, b.stream, Forward{b.in(0), ceiling, b.out(0)});
  });
  kernel.backward.push_back(own_pass({output(0, p.src), diff_output(0, p.src)},
                                     {diff_input(0, p.src)}, [=](const Bound& b) {
                                       launch_each("clipped relu, backward", count, b.stream,
                                                   Backward{b.in(0), ceiling, b.in(1), b.out(0)});
                                     }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
