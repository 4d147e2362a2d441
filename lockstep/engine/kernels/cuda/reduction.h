// Sums in a fixed order that depends only on the problem's sizes, never on timing. Partial sums are
// in double.
#pragma once

#include <algorithm>
#include <bit>

#include "lockstep/engine/kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// Keeps a NaN on the left and drops a NaN on the right. Callers must not rely on either.
struct Greater {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// Combines one value from each thread of the block (a power of two) in a tree. All threads get the
// result. `shared` has room for one value per thread, and may be reused afterwards.
template <class T, class Combine>
__device__ T block_reduce(T value, T* shared, Combine combine) {
  const unsigned t = threadIdx.x;
  shared[t] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) shared[t] = combine(shared[t], shared[t + half]);
    __syncthreads();
  }
  const T result = shared[0];
  __syncthreads();
  return result;
}

// One block per row. The number of threads is a power of two between 32 and kBlock that suits
// `columns`, with one double of shared memory for each.
inline Grid grid_of_rows(int64_t rows, int64_t columns) {
  const auto wanted =
      std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(columns, 32, kBlock)));
  return {rows, static_cast<int>(wanted), wanted * sizeof(double)};
}

// Partition of a rows x columns matrix for sums over the rows of each column. A block handles
// `width` columns and `chunk` rows.
struct ColumnCut {
  int64_t rows = 0, columns = 0;
  int64_t tiles = 0, chunk = 0, chunks = 0;
  int width = 0;  // a power of two up to 32

  ColumnCut(int64_t row_count, int64_t column_count) : rows(row_count), columns(column_count) {
    width = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(columns, 32))));
    tiles = (columns + width - 1) / width;
    // Enough blocks to fill a GPU, and at least 16 rows per thread.
    const int64_t lanes = kBlock / width;
    const int64_t most = std::max<int64_t>(1024 / tiles, 1);
    chunks = std::clamp<int64_t>(rows / (16 * lanes), 1, most);
    chunk = (rows + chunks - 1) / chunks;
    chunks = (rows + chunk - 1) / chunk;
  }
  // Scratch for K sums of each column.
  size_t bytes(int k) const { return static_cast<size_t>(chunks * columns * k) * sizeof(double); }
};

template <int K>
struct Sums {
  double value[K] = {};
};

// Adds the sums of a block's threads over lanes; thread (lane 0, column) gets the result. Threads
// are numbered lane * width + column.
template <int K>
__device__ Sums<K> lane_sums(const Sums<K>& own, int width) {
  auto* shared = shared_memory<Sums<K>>();
  const int t = static_cast<int>(threadIdx.x);
  shared[t] = own;
  __syncthreads();
  for (int half = static_cast<int>(blockDim.x) / 2; half >= width; half /= 2) {
    if (t < half) {
      for (int k = 0; k < K; ++k) shared[t].value[k] += shared[t + half].value[k];
    }
    __syncthreads();
  }
  return shared[t];
}

// First stage. term(term.column(c), row) gives the K summands for one row of column c. column() is
// called once per thread for many rows. partials: chunks x columns.
template <int K, class Term>
__global__ void column_partials(ColumnCut cut, Term term, Sums<K>* partials) {
  const Division where = divide(blockIdx.x, cut.tiles);
  const int lane = static_cast<int>(threadIdx.x) / cut.width;
  const int lanes = static_cast<int>(blockDim.x) / cut.width;
  const int64_t column = where.remainder * cut.width + static_cast<int>(threadIdx.x) % cut.width;
  const int64_t first = where.quotient * cut.chunk;
  const int64_t end = first + cut.chunk < cut.rows ? first + cut.chunk : cut.rows;
  Sums<K> own;
  if (column < cut.columns) {
    const auto state = term.column(column);
    for (int64_t row = first + lane; row < end; row += lanes) {
      const Sums<K> summands = term(state, row);
      for (int k = 0; k < K; ++k) own.value[k] += summands.value[k];
    }
  }
  const Sums<K> sums = lane_sums(own, cut.width);
  if (lane == 0 && column < cut.columns) partials[where.quotient * cut.columns + column] = sums;
}

// Second stage. finish(column, sums) receives the K sums of each column.
template <int K, class Finish>
__global__ void column_totals(ColumnCut cut, const Sums<K>* partials, Finish finish) {
  const int lane = static_cast<int>(threadIdx.x) / cut.width;
  const int lanes = static_cast<int>(blockDim.x) / cut.width;
  const int64_t column =
      int64_t{blockIdx.x} * cut.width + static_cast<int>(threadIdx.x) % cut.width;
  Sums<K> own;
  if (column < cut.columns) {
    for (int64_t chunk = lane; chunk < cut.chunks; chunk += lanes) {
      const Sums<K> part = partials[chunk * cut.columns + column];
      for (int k = 0; k < K; ++k) own.value[k] += part.value[k];
    }
  }
  const Sums<K> sums = lane_sums(own, cut.width);
  if (lane == 0 && column < cut.columns) finish(column, sums);
}

// Runs body(body.column(c), row) for all rows of all columns c, with the same partition as the
// sums.
template <class Body>
__global__ void each_of_columns(ColumnCut cut, Body body) {
  const Division where = divide(blockIdx.x, cut.tiles);
  const int lane = static_cast<int>(threadIdx.x) / cut.width;
  const int lanes = static_cast<int>(blockDim.x) / cut.width;
  const int64_t column = where.remainder * cut.width + static_cast<int>(threadIdx.x) % cut.width;
  const int64_t first = where.quotient * cut.chunk;
  const int64_t end = first + cut.chunk < cut.rows ? first + cut.chunk : cut.rows;
  if (column >= cut.columns) return;
  const auto state = body.column(column);
  for (int64_t row = first + lane; row < end; row += lanes) body(state, row);
}

template <class Body>
void launch_each_of_columns(const char* name, const ColumnCut& cut, void* stream,
                            const Body& body) {
  launch(name, each_of_columns<Body>, {.blocks = cut.tiles * cut.chunks}, stream, cut, body);
}

// Runs both stages. `scratch` has cut.bytes(K) bytes.
template <int K, class Term, class Finish>
void launch_column_sums(const char* name, const ColumnCut& cut, const Term& term,
                        const Finish& finish, void* scratch, void* stream) {
  auto* partials = static_cast<Sums<K>*>(scratch);
  const Grid grid{.blocks = cut.tiles * cut.chunks, .shared_bytes = kBlock * sizeof(Sums<K>)};
  launch(name, column_partials<K, Term>, grid, stream, cut, term, partials);
  launch(name, column_totals<K, Finish>, {.blocks = cut.tiles, .shared_bytes = grid.shared_bytes},
         stream, cut, static_cast<const Sums<K>*>(partials), finish);
}

// Stores sums of columns as the gradients of a normalisation's scale and shift.
struct TakeProducts {
  float *diff_scale, *diff_shift;
  __device__ void operator()(int64_t c, const Sums<2>& sums) const {
    diff_scale[c] = static_cast<float>(sums.value[0]);
    diff_shift[c] = static_cast<float>(sums.value[1]);
  }
};

}  // namespace lockstep::kernels::cuda
