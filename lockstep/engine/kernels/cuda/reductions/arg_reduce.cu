#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/reductions/arg_axis.h"
#include "lockstep/engine/kernels/reductions/arg_reduce.h"

namespace lockstep::kernels::cuda {
namespace {

struct Candidate {
  float value;
  int64_t at;  // -1: there is none
};

// The winner of two, in either order.
__device__ Candidate winner(bool smallest, const Candidate& a, const Candidate& b) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  if (wins(smallest, b.value, a.value)) return b;
  if (wins(smallest, a.value, b.value)) return a;
  return a.at < b.at ? a : b;
}

// A block for each row of `size` elements.
__global__ void arg_reduce_rows(const float* x, int64_t* dst, int64_t size, bool smallest) {
  auto* shared = shared_memory<Candidate>();
  x += int64_t{blockIdx.x} * size;
  Candidate best{0, -1};
  for (int64_t k = threadIdx.x; k < size; k += blockDim.x) {
    best = winner(smallest, best, {x[k], k});
  }
  shared[threadIdx.x] = best;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared[threadIdx.x] = winner(smallest, shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) dst[blockIdx.x] = shared[0].at;
}

// A thread for each result, where neighbors read neighbors.
struct ArgReduceColumns {
  const float* x;
  int64_t* dst;
  SplitAxis axis;
  bool smallest;
  __device__ void operator()(int64_t n) const {
    const Division at = divide(n, axis.inner);
    const float* const from = x + at.quotient * axis.size * axis.inner + at.remainder;
    Candidate best{from[0], 0};
    for (int64_t k = 1; k < axis.size; ++k) {
      if (wins(smallest, from[k * axis.inner], best.value)) best = {from[k * axis.inner], k};
    }
    dst[n] = best.at;
  }
};

}  // namespace

Kernel arg_reduce(const ArgReduceProblem& p) {
  const SplitAxis axis = arg_axis(p);
  const TensorSpec dst = plain_spec(without_axis(p.src.shape, p.axis), DType::i64);
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, p.src.plain())}, {output(0, dst)},
      [axis, smallest = p.smallest, results = dst.shape.elements()](const Bound& b) {
        if (results == 0) return;
        if (axis.inner > 1) {
          launch_each("arg_reduce", results, b.stream,
                      ArgReduceColumns{b.in(0), b.out<int64_t>(0), axis, smallest});
        } else {
          launch("arg_reduce", arg_reduce_rows,
                 {.blocks = results, .threads = kBlock, .shared_bytes = kBlock * sizeof(Candidate)},
                 b.stream, b.in(0), b.out<int64_t>(0), axis.size, smallest);
        }
      });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
