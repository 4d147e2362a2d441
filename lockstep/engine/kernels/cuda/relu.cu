#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/relu.h"

namespace lockstep::kernels::cuda {
namespace {

struct Forward {
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const {
    y[i] = x[i] > 0 ? x[i] : (x[i] != x[i] ? x[i] : 0.0f);  // NaN stays
  }
};

struct Backward {
  const float *y, *dy;
  float* dx;
  __device__ void operator()(int64_t i) const { dx[i] = y[i] > 0 ? dy[i] : 0.0f; }
};

}  // namespace

// Works on the memory as it lies.
Kernel relu(const ReluProblem& p) {
  const int64_t count = p.src.shape.elements();
  Kernel kernel;
  kernel.forward = own_pass({input(0, p.src)}, {output(0, p.src)}, [count](const Bound& b) {
    launch_each("relu", count, b.queue, Forward{b.in(0), b.out(0)});
  });
  kernel.backward.push_back(own_pass(
      {output(0, p.src), diff_output(0, p.src)}, {diff_input(0, p.src)}, [count](const Bound& b) {
        launch_each("relu, backward", count, b.queue, Backward{b.in(0), b.in(1), b.out(0)});
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
