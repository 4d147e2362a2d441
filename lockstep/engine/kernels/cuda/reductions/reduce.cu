#include <algorithm>
#include <limits>
#include <string>

#include "lockstep/engine/kernels/cuda/elementwise/expression.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/reductions/reduce.h"
#include "lockstep/engine/kernels/reductions/reduce_axes.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kMostAxes = 8;
constexpr int kLanes = static_cast<int>(kReduceLanes);

// StridedAxes for a launch.
struct Axes {
  int count;
  int64_t dims[kMostAxes], strides[kMostAxes];

  // The offset of a position in row-major order.
  __device__ int64_t offset(int64_t position) const {
    int64_t offset = 0;
    for (int axis = count - 1; axis >= 0; --axis) {
      const Division where = divide(position, dims[axis]);
      offset += where.remainder * strides[axis];
      position = where.quotient;
    }
    return offset;
  }
};

// In double, which is exact for maximum and minimum.
struct Join {
  Reduction kind;
  double factor;

  __device__ double neutral() const { return neutral_element<double>(kind); }
  __device__ double operator()(double a, double b) const { return join(kind, a, b); }
  __device__ float rounded(double result) const {
    return static_cast<float>(kind == Reduction::sum ? factor * result : result);
  }
};

// The order of reduce_axes.h: all blocks of all results, then the sum of each result's blocks.
struct Reducing {
  Axes kept, reduced;
  Join join;
  int64_t outputs, positions, row, block_positions, segments, blocks;
  const float* x;
  double* parts;  // blocks x outputs
  float* dst;

  __device__ int64_t end_of(int64_t first) const {
    return first + block_positions < positions ? first + block_positions : positions;
  }
};

// kLanes threads for each block.
__global__ void blocks_of_rows(Reducing r) {
  auto* shared = shared_memory<double>();
  const int t = static_cast<int>(threadIdx.x), lane = t % kLanes;
  const int64_t item = int64_t{blockIdx.x} * (kBlock / kLanes) + t / kLanes;
  double result = r.join.neutral();
  if (item < r.blocks * r.outputs) {
    const Division where = divide(item, r.outputs);
    const Division block = divide(where.quotient, r.segments);
    const int64_t begin = block.remainder * kReduceBlock;
    const int64_t rest = r.row - begin;
    const int64_t length = r.segments > 1 && rest > kReduceBlock ? kReduceBlock : rest;
    const float* const from = r.x + r.kept.offset(where.remainder) + begin;
    const int64_t first = block.quotient * r.block_positions;
    for (int64_t p = first; p < r.end_of(first); ++p) {
      const float* const at = from + r.reduced.offset(p);
      for (int64_t j = lane; j < length; j += kLanes) {
        result = r.join(result, static_cast<double>(at[j]));
      }
    }
  }
  shared[t] = result;
  __syncthreads();
  for (int half = kLanes / 2; half > 0; half /= 2) {
    if (lane < half) shared[t] = r.join(shared[t], shared[t + half]);
    __syncthreads();
  }
  if (lane == 0 && item < r.blocks * r.outputs) r.parts[item] = shared[t];
}

// Blocks of single elements, one thread each.
struct BlocksOfColumns {
  Reducing r;
  __device__ void operator()(int64_t item) const {
    const Division where = divide(item, r.outputs);
    const float* const from = r.x + r.kept.offset(where.remainder);
    double result = r.join.neutral();
    const int64_t first = where.quotient * r.block_positions;
    for (int64_t p = first; p < r.end_of(first); ++p) {
      result = r.join(result, static_cast<double>(from[r.reduced.offset(p)]));
    }
    r.parts[item] = result;
  }
};

struct Totals {
  Reducing r;
  __device__ void operator()(int64_t output) const {
    double total = r.join.neutral();
    for (int64_t b = 0; b < r.blocks; ++b) {
      total = r.join(total, r.parts[b * r.outputs + output]);
    }
    r.dst[output] = r.join.rounded(total);
  }
};

Axes axes_of(const StridedAxes& from, const Shape& shape) {
  if (from.dims.size() > kMostAxes) {
    throw Unsupported("[cuda] reduce: kept and reduced axes of " + shape.to_string() +
                      " alternate more often than " + std::to_string(kMostAxes) + " times");
  }
  Axes axes{};
  axes.count = static_cast<int>(from.dims.size());
  std::copy(from.dims.begin(), from.dims.end(), axes.dims);
  std::copy(from.strides.begin(), from.strides.end(), axes.strides);
  return axes;
}

}  // namespace

Kernel reduce(const ReduceProblem& p) {
  const ReduceAxes axes = reduce_axes(p);
  Reducing r{};
  r.kept = axes_of(axes.kept, p.src.shape);
  r.reduced = axes_of(axes.reduced, p.src.shape);
  r.join = {p.kind, p.factor};
  r.outputs = axes.kept.positions();
  r.positions = axes.reduced.positions();
  r.row = axes.row;
  r.block_positions = axes.block_positions;
  r.segments = axes.segments;
  r.blocks = axes.position_blocks() * axes.segments;
  std::vector<int64_t> dims;
  for (int axis = 0; axis < p.src.shape.rank(); ++axis) {
    if (std::count(p.axes.begin(), p.axes.end(), axis) == 0) dims.push_back(p.src.shape[axis]);
  }
  const int64_t items = r.blocks * r.outputs;
  const size_t parts = static_cast<size_t>(items) * sizeof(double);
  const auto run = [r, items, rows = axes.has_rows](const Bound& b, const float* x) {
    Reducing bound = r;
    bound.x = x;
    bound.parts = static_cast<double*>(b.scratch);
    bound.dst = b.out(0);
    if (rows && items > 0) {
      constexpr int64_t at_once = kBlock / kLanes;
      launch("reduce", blocks_of_rows,
             {.blocks = (items + at_once - 1) / at_once, .shared_bytes = kBlock * sizeof(double)},
             b.stream, bound);
    } else {
      launch_each("reduce", items, b.stream, BlocksOfColumns{bound});
    }
    launch_each("reduce, totals", bound.outputs, b.stream, Totals{bound});
  };
  Kernel kernel;
  const std::vector<Operand> dst{output(0, plain_spec(Shape(dims)))};
  if (p.of.program.empty()) {
    kernel.forward = own_pass(
        {input(0, p.src.plain())}, dst, [run](const Bound& b) { run(b, b.in(0)); }, parts);
    return kernel;
  }
  // What is reduced lies after the parts.
  std::vector<Operand> reads;
  for (size_t k = 0; k < p.of.src.size(); ++k) {
    reads.push_back(input(static_cast<int>(k), p.of.src[k]));
  }
  kernel.forward = own_pass(
      std::move(reads), dst,
      [run, items, launch = expression_launch(p.of)](const Bound& b) {
        auto* const x = reinterpret_cast<float*>(static_cast<double*>(b.scratch) + items);
        launch(b, x);
        run(b, x);
      },
      parts + p.src.bytes());
  return kernel;
}

}  // namespace lockstep::kernels::cuda
