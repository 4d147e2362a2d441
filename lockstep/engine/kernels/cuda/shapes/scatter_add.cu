#include <bit>

#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/shapes/indexed_axis.h"
#include "lockstep/engine/kernels/shapes/scatter_add.h"

namespace lockstep::kernels::cuda {
namespace {

// The index that a position's update is added at. All pairs are different, so every way of sorting
// gives one order.
struct IndexedPosition {
  int64_t index, position;
  __device__ bool before(const IndexedPosition& other) const {
    return index < other.index || (index == other.index && position < other.position);
  }
};

// The positions with their indices; those without one, and what completes a power of two, at
// `size`.
struct PairPositions {
  Indices indices;
  int64_t count, size;
  IndexedPosition* pairs;
  __device__ void operator()(int64_t j) const {
    const int64_t index = j < count ? indices[j] : size;
    pairs[j] = {index >= 0 && index < size ? index : size, j};
  }
};

// A stage of a bitonic sort: compares elements `distance` apart, in runs of `run` elements that
// ascend and descend in turn.
struct Sort {
  IndexedPosition* pairs;
  int64_t run, distance;
  __device__ void operator()(int64_t i) const {
    const int64_t first = i / distance * 2 * distance + i % distance, second = first + distance;
    const IndexedPosition a = pairs[first], b = pairs[second];
    const bool ascends = (first & run) == 0;
    if (b.before(a) != ascends) return;
    pairs[first] = b;
    pairs[second] = a;
  }
};

// One element of the result: the updates of its index in order.
struct SumRows {
  const float* updates;
  const IndexedPosition* pairs;
  float* dst;
  SplitAxis x;
  int64_t count;
  __device__ void operator()(int64_t n) const {
    const Division column = divide(n, x.inner);
    const Division at = divide(column.quotient, x.size);
    // The first position of the index.
    int64_t first = 0, end = count;
    while (first < end) {
      const int64_t middle = first + (end - first) / 2;
      if (pairs[middle].index < at.remainder) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    double sum = 0;
    for (; first < count && pairs[first].index == at.remainder; ++first) {
      sum += static_cast<double>(
          updates[(at.quotient * count + pairs[first].position) * x.inner + column.remainder]);
    }
    dst[n] = static_cast<float>(sum);
  }
};

struct ZeroSums {
  double* sums;
  __device__ void operator()(int64_t n) const { sums[n] = 0; }
};

// The updates of one column of one outer index, in order.
struct SumElements {
  const float* updates;
  Indices indices;
  double* sums;
  SplitAxis x;
  int64_t count;
  __device__ void operator()(int64_t i) const {
    const Division at = divide(i, x.inner);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t n = (at.quotient * count + j) * x.inner + at.remainder, index = indices[n];
      if (index < 0 || index >= x.size) continue;
      sums[(at.quotient * x.size + index) * x.inner + at.remainder] +=
          static_cast<double>(updates[n]);
    }
  }
};

struct Round {
  const double* sums;
  float* dst;
  __device__ void operator()(int64_t n) const { dst[n] = static_cast<float>(sums[n]); }
};

int64_t sorted(const IndexedAxis& a) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(a.count)));
}

void scatter_rows(const IndexedAxis& a, int64_t elements, const Bound& b) {
  auto* const pairs = static_cast<IndexedPosition*>(b.scratch);
  const int64_t all = sorted(a);
  launch_each("scatter_add", all, b.stream,
              PairPositions{a.indices(b.reads[1]), a.count, a.x.size, pairs});
  for (int64_t run = 2; run <= all; run *= 2) {
    for (int64_t distance = run / 2; distance > 0; distance /= 2) {
      launch_each("scatter_add", all / 2, b.stream, Sort{pairs, run, distance});
    }
  }
  launch_each("scatter_add", elements, b.stream, SumRows{b.in(0), pairs, b.out(0), a.x, a.count});
}

void scatter_elements(const IndexedAxis& a, int64_t elements, const Bound& b) {
  auto* const sums = static_cast<double*>(b.scratch);
  launch_each("scatter_add", elements, b.stream, ZeroSums{sums});
  launch_each("scatter_add", a.x.outer * a.x.inner, b.stream,
              SumElements{b.in(0), a.indices(b.reads[1]), sums, a.x, a.count});
  launch_each("scatter_add", elements, b.stream, Round{sums, b.out(0)});
}

}  // namespace

Kernel scatter_add(const ScatterAddProblem& p) {
  const IndexedAxis axis = scattered_axis(p);
  const int64_t elements = p.dst.elements();
  const size_t scratch = axis.per_element
                             ? static_cast<size_t>(elements) * sizeof(double)
                             : static_cast<size_t>(sorted(axis)) * sizeof(IndexedPosition);
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, p.updates.plain()), input(1, p.indices.plain())}, {output(0, plain_spec(p.dst))},
      [axis, elements](const Bound& b) {
        if (axis.per_element) {
          scatter_elements(axis, elements, b);
        } else {
          scatter_rows(axis, elements, b);
        }
      },
      scratch);
  return kernel;
}

}  // namespace lockstep::kernels::cuda
