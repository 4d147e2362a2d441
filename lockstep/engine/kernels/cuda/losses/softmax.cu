#include "lockstep/engine/kernels/cuda/losses/softmax_row.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/losses/softmax.h"

namespace lockstep::kernels::cuda {
namespace {

// One block per row of channels.
__global__ void softmax_forward(const float* x, float* y, int64_t channels) {
  const int64_t first = int64_t{blockIdx.x} * channels;
  softmax_row(x + first, y + first, channels, shared_memory<double>());
}

__global__ void softmax_backward(const float* y, const float* dy, float* dx, int64_t channels) {
  const int64_t first = int64_t{blockIdx.x} * channels;
  double dot = 0;
  for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
    dot += static_cast<double>(y[first + c]) * static_cast<double>(dy[first + c]);
  }
  dot = block_reduce(dot, shared_memory<double>(), Plus{});
  for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
    dx[first + c] = y[first + c] * (dy[first + c] - static_cast<float>(dot));
  }
}

}  // namespace

Kernel softmax(const SoftmaxProblem& p) {
  const TensorSpec spec = channels_last(p.src.shape);
  const Extents e = extents_of(spec.shape);
  const int64_t channels = e.channels;
  const Grid grid = grid_of_rows(e.outer * e.space, channels);
  Kernel kernel;
  kernel.forward = own_pass({input(0, spec)}, {output(0, spec)}, [=](const Bound& b) {
    launch("softmax", softmax_forward, grid, b.stream, b.in(0), b.out(0), channels);
  });
  kernel.backward.push_back(
      own_pass({output(0, spec), diff_output(0, spec)}, {diff_input(0, spec)}, [=](const Bound& b) {
        launch("softmax, backward", softmax_backward, grid, b.stream, b.in(0), b.in(1), b.out(0),
               channels);
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
