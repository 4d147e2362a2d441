#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/reduction.h"
#include "lockstep/engine/kernels/losses/mean_squared_error.h"

namespace lockstep::kernels::cuda {
namespace {

// One block per observation.
__global__ void squared_error(const float* prediction, const float* target, float* loss,
                              int64_t columns) {
  const int64_t first = int64_t{blockIdx.x} * columns;
  double total = 0;
  for (int64_t i = first + threadIdx.x; i < first + columns; i += blockDim.x) {
    const double d = static_cast<double>(prediction[i]) - static_cast<double>(target[i]);
    total += d * d;
  }
  total = block_reduce(total, shared_memory<double>(), Plus{});
  if (threadIdx.x == 0) {
    loss[blockIdx.x] = static_cast<float>(total / static_cast<double>(columns));
  }
}

struct Backward {
  const float *prediction, *target, *g;
  float sign;  // 2 for the prediction, -2 for the target
  float* d;
  int64_t columns;
  __device__ void operator()(int64_t i) const {
    const float factor = sign * g[divide(i, columns).quotient] / static_cast<float>(columns);
    d[i] = factor * (prediction[i] - target[i]);
  }
};

}  // namespace

Kernel mean_squared_error(const MeanSquaredErrorProblem& p) {
  const TensorSpec spec = p.prediction.plain();
  const int64_t rows = spec.shape[0], count = spec.shape.elements(), columns = count / rows;
  const TensorSpec loss = plain_spec(Shape{rows});
  const Grid grid = grid_of_rows(rows, columns);
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, spec), input(1, spec)}, {output(0, loss)}, [=](const Bound& b) {
        launch("mean squared error", squared_error, grid, b.stream, b.in(0), b.in(1), b.out(0),
               columns);
      });
  for (int which = 0; which < 2; ++which) {
    kernel.backward.push_back(
        own_pass({input(0, spec), input(1, spec), diff_output(0, loss)}, {diff_input(which, spec)},
                 [=](const Bound& b) {
                   const float sign = which == 0 ? 2.0f : -2.0f;
                   launch_each("mean squared error, backward", count, b.stream,
                               Backward{b.in(0), b.in(1), b.in(2), sign, b.out(0), columns});
                 }));
  }
  return kernel;
}

}  // namespace lockstep::kernels::cuda
