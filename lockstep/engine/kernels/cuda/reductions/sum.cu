#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/reductions/sum.h"

namespace lockstep::kernels::cuda {
namespace {

// Adding neighbors level by level, and passing on an odd one, gives the fixed tree. The tree
// splits at the largest power of two below n, so groups of kGroup elements are subtrees.
constexpr int kGroup = 2 * kBlock;

// Computes the sum of each group of kGroup elements. The last launch has one group and applies
// `factor`.
template <class From, class To>
__global__ void group_sums(const From* x, int64_t count, double factor, To* sums) {
  auto* shared = shared_memory<double>();
  const int64_t first = int64_t{blockIdx.x} * kGroup;
  int here = static_cast<int>(count - first < kGroup ? count - first : kGroup);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < here; i += kBlock) shared[i] = static_cast<double>(x[first + i]);
  __syncthreads();
  while (here > 1) {
    double pair = 0;
    if (2 * t + 1 < here) {
      pair = shared[2 * t] + shared[2 * t + 1];
    } else if (2 * t < here) {
      pair = shared[2 * t];
    }
    __syncthreads();
    if (2 * t < here) shared[t] = pair;
    here = (here + 1) / 2;
    __syncthreads();
  }
  if (t == 0) sums[blockIdx.x] = static_cast<To>(factor * shared[0]);
}

constexpr int64_t groups_of(int64_t count) { return (count + kGroup - 1) / kGroup; }

struct Spread {
  const float* g;
  double factor;
  float* dx;
  __device__ void operator()(int64_t i) const {
    dx[i] = static_cast<float>(factor * static_cast<double>(*g));
  }
};

}  // namespace

Kernel sum(const SumProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(Shape{});
  const int64_t count = src.shape.elements();
  const double factor = p.factor;
  const int64_t groups = groups_of(count);
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, src)}, {output(0, dst)},
      [=](const Bound& b) {
        const Grid one{.shared_bytes = kGroup * sizeof(double)};
        if (groups == 1) {
          launch("sum", group_sums<float, float>, one, b.stream, b.in(0), count, factor, b.out(0));
          return;
        }
        // Launches alternate between the two parts of scratch.
        auto* from = static_cast<double*>(b.scratch);
        double* to = from + groups;
        Grid grid = one;
        grid.blocks = groups;
        launch("sum", group_sums<float, double>, grid, b.stream, b.in(0), count, 1.0, from);
        int64_t left = groups;
        while (left > kGroup) {
          grid.blocks = groups_of(left);
          launch("sum", group_sums<double, double>, grid, b.stream,
                 static_cast<const double*>(from), left, 1.0, to);
          std::swap(from, to);
          left = grid.blocks;
        }
        launch("sum", group_sums<double, float>, one, b.stream, static_cast<const double*>(from),
               left, factor, b.out(0));
      },
      groups == 1 ? 0 : static_cast<size_t>(groups + groups_of(groups)) * sizeof(double));
  // All elements are equal, so the layout only has to match `src`.
  kernel.backward.push_back(
      own_pass({diff_output(0, dst)}, {diff_input(0, src)}, [=](const Bound& b) {
        launch_each("sum, backward", count, b.stream, Spread{b.in(0), factor, b.out(0)});
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
