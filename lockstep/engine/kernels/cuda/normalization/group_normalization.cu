#include <cmath>

#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/reduction.h"
#include "lockstep/engine/kernels/normalization/group_normalization.h"

namespace lockstep::kernels::cuda {
namespace {

// Memory is a matrix of (observation, pixel) x channel.
struct Groups {
  int64_t channels, groups, per_group, space;

  __device__ int64_t elements() const { return per_group * space; }
  // Index of element i of a group. `row` numbers all groups of all observations.
  __device__ int64_t index(int64_t row, int64_t i) const {
    const Division where = divide(row, groups), at = divide(i, per_group);
    return (where.quotient * space + at.quotient) * channels + where.remainder * per_group +
           at.remainder;
  }
};

__device__ float standardized(const GroupStatistics& s, float x) {
  return ((x - s.mean) - s.mean_rest) * s.inverse_deviation;
}

// One block per observation and group. The variance needs a second pass: a difference of large sums
// is inaccurate for a mean far from zero.
__global__ void group_statistics(Groups g, const float* x, double epsilon,
                                 GroupStatistics* statistics) {
  auto* shared = shared_memory<double>();
  const int64_t row = blockIdx.x, count = g.elements();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    sum += static_cast<double>(x[g.index(row, i)]);
  }
  const double mean = block_reduce(sum, shared, Plus{}) / static_cast<double>(count);
  double squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const double d = static_cast<double>(x[g.index(row, i)]) - mean;
    squares += d * d;
  }
  const double variance = block_reduce(squares, shared, Plus{}) / static_cast<double>(count);
  if (threadIdx.x == 0) {
    const auto head = static_cast<float>(mean);
    statistics[row] = {head, static_cast<float>(mean - static_cast<double>(head)),
                       static_cast<float>(1 / std::sqrt(variance + epsilon))};
  }
}

// Means over a group of scale * dy * standardized x (scale) and of scale * dy (shift).
struct Means {
  float scale, shift;
};

__global__ void group_means(Groups g, const float* x, const float* dy, const float* scale,
                            const GroupStatistics* statistics, Means* means) {
  auto* shared = shared_memory<double>();
  const int64_t row = blockIdx.x, count = g.elements();
  const GroupStatistics s = statistics[row];
  double products = 0, sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int64_t at = g.index(row, i);
    const double d =
        static_cast<double>(dy[at]) * static_cast<double>(scale[divide(at, g.channels).remainder]);
    products += d * static_cast<double>(standardized(s, x[at]));
    sum += d;
  }
  products = block_reduce(products, shared, Plus{}) / static_cast<double>(count);
  sum = block_reduce(sum, shared, Plus{}) / static_cast<double>(count);
  if (threadIdx.x == 0) means[row] = {static_cast<float>(products), static_cast<float>(sum)};
}

// A column of the matrix.
struct Channel {
  int64_t group;
  float scale, shift;
};

struct Apply {
  Groups g;
  const float *x, *scale, *shift;
  const GroupStatistics* statistics;
  float* y;
  __device__ Channel columns(int64_t c) const {
    return {divide(c, g.per_group).quotient, scale[c], shift[c]};
  }
  __device__ float load(int64_t c, int64_t row) const { return x[row * g.channels + c]; }
  __device__ void store(const Channel& channel, float v, int64_t c, int64_t row) const {
    const GroupStatistics& s = statistics[divide(row, g.space).quotient * g.groups + channel.group];
    y[row * g.channels + c] = standardized(s, v) * channel.scale + channel.shift;
  }
};

// An element with the gradient that arrives at it, and the number of its row.
struct Arrival {
  float x, dy;
  int64_t row;
};

// Summands of diff scale and diff shift.
struct Products {
  Groups g;
  const float *x, *dy;
  const GroupStatistics* statistics;
  __device__ Channel columns(int64_t c) const { return {divide(c, g.per_group).quotient, 0, 0}; }
  __device__ Arrival load(int64_t c, int64_t row) const {
    const int64_t i = row * g.channels + c;
    return {x[i], dy[i], row};
  }
  __device__ void add(const Channel& channel, const Arrival& at, Sums<2> (&sums)[1]) const {
    const GroupStatistics& s =
        statistics[divide(at.row, g.space).quotient * g.groups + channel.group];
    sums[0].value[0] += at.dy * standardized(s, at.x);
    sums[0].value[1] += at.dy;
  }
};

// Stores sums of columns as the gradients of a normalization's scale and shift.
struct TakeProducts {
  float *diff_scale, *diff_shift;
  __device__ void operator()(int64_t c, const Totals<2>& sums) const {
    diff_scale[c] = static_cast<float>(sums.value[0]);
    diff_shift[c] = static_cast<float>(sums.value[1]);
  }
};

struct ApplyBackward {
  Groups g;
  const float *x, *dy, *scale;
  const GroupStatistics* statistics;
  const Means* means;
  float* dx;
  __device__ Channel columns(int64_t c) const {
    return {divide(c, g.per_group).quotient, scale[c], 0};
  }
  __device__ Arrival load(int64_t c, int64_t row) const {
    const int64_t i = row * g.channels + c;
    return {x[i], dy[i], row};
  }
  __device__ void store(const Channel& channel, const Arrival& at, int64_t c, int64_t row) const {
    const int64_t group = divide(row, g.space).quotient * g.groups + channel.group;
    const GroupStatistics& s = statistics[group];
    const Means& m = means[group];
    const float d = at.dy * channel.scale - m.shift - standardized(s, at.x) * m.scale;
    dx[row * g.channels + c] = d * s.inverse_deviation;
  }
};

}  // namespace

Kernel group_normalization(const GroupNormalizationProblem& p) {
  const TensorSpec src = channels_last(p.src.shape);
  const Extents e = extents_of(src.shape);
  const TensorSpec per_channel = plain_spec(Shape{e.channels});
  const Groups g{e.channels, p.groups, e.channels / p.groups, e.space};
  const double epsilon = p.epsilon;
  const int64_t rows = e.outer * p.groups;
  const Grid grid = grid_of_rows(rows, g.per_group * g.space);
  const ColumnCut cut(e.outer * e.space, e.channels);
  const Operand kept = workspace(static_cast<size_t>(rows) * sizeof(GroupStatistics));
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, src), input(1, per_channel), input(2, per_channel)},
               {output(0, src), kept}, [=](const Bound& b) {
                 auto* const statistics = b.out<GroupStatistics>(1);
                 launch("group normalization, statistics", group_statistics, grid, b.stream, g,
                        b.in(0), epsilon, statistics);
                 launch_each_of_columns("group normalization", cut, b.stream,
                                        Apply{g, b.in(0), b.in(1), b.in(2), statistics, b.out(0)});
               });
  kernel.backward.push_back(own_pass(
      {input(0, src), diff_output(0, src), input(1, per_channel), kept},
      {diff_input(0, src), diff_input(1, per_channel), diff_input(2, per_channel)},
      [=](const Bound& b) {
        const auto* const statistics = b.in<GroupStatistics>(3);
        auto* const means = reinterpret_cast<Means*>(static_cast<char*>(b.scratch) + cut.bytes(2));
        launch("group normalization, means", group_means, grid, b.stream, g, b.in(0), b.in(1),
               b.in(2), statistics, means);
        launch_column_sums<1, 2>("group normalization, sums", cut,
                                 Products{g, b.in(0), b.in(1), statistics},
                                 TakeProducts{b.out(1), b.out(2)}, b.scratch, b.stream);
        launch_each_of_columns(
            "group normalization, backward", cut, b.stream,
            ApplyBackward{g, b.in(0), b.in(1), b.in(2), statistics, means, b.out(0)});
      },
      cut.bytes(2) + static_cast<size_t>(rows) * sizeof(Means)));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
