// Sums in a fixed order that depends only on the problem's sizes, never on timing.
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

// Partition of a rows x columns matrix for sums over the rows of each column. A thread takes `pack`
// neighboring columns, a block `width` packs and `chunk` rows.
struct ColumnCut {
  int64_t rows = 0, columns = 0;
  int64_t tiles = 0, chunk = 0, chunks = 0;
  int pack = 1;   // divides `columns`
  int width = 0;  // a power of two up to 32

  ColumnCut(int64_t row_count, int64_t column_count, int columns_at_once = 1)
      : rows(row_count), columns(column_count), pack(columns_at_once) {
    const int64_t packs = columns / pack;
    width = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(packs, 32))));
    tiles = (packs + width - 1) / width;
    // Enough blocks to fill a GPU, and some rows for each thread.
    const int64_t lanes = kBlock / width;
    const int64_t most = std::max<int64_t>(1024 / tiles, 1);
    chunks = std::clamp<int64_t>(rows / (8 * lanes), 1, most);
    chunk = (rows + chunks - 1) / chunks;
    chunks = (rows + chunk - 1) / chunk;
  }
  // Scratch for K sums of each column.
  size_t bytes(int k) const { return static_cast<size_t>(chunks * columns * k) * sizeof(float); }
};

// Of a thread's rows and of a chunk in float, which loses little in some dozens of rows and a tree;
// of all chunks in double.
template <int K, class Float>
struct SumsOf {
  Float value[K] = {};
};
template <int K>
using Sums = SumsOf<K, float>;
template <int K>
using Totals = SumsOf<K, double>;

// Where a thread of a partition works: its first column, and rows [row, end) in steps of `lanes`.
struct ThreadRows {
  int lane, lanes;
  int64_t chunk, column, row, end;

  __device__ ThreadRows(const ColumnCut& cut) {
    const Division where = divide(blockIdx.x, cut.tiles);
    lane = static_cast<int>(threadIdx.x) / cut.width;
    lanes = static_cast<int>(blockDim.x) / cut.width;
    chunk = where.quotient;
    column = (where.remainder * cut.width + static_cast<int>(threadIdx.x) % cut.width) * cut.pack;
    const int64_t first = chunk * cut.chunk;
    row = first + lane;
    end = first + cut.chunk < cut.rows ? first + cut.chunk : cut.rows;
  }
};

// Calls use(loaded row, row) for a thread's rows in order. 64 bytes are on their way before the
// first are used; more would take registers from other blocks.
template <class Load, class Use>
__device__ void for_rows(const ThreadRows& at, const Load& load, const Use& use) {
  int64_t row = at.row;
  using Loaded = decltype(load(row));
  constexpr int ahead = sizeof(Loaded) >= 32 ? 2 : 4;
  for (; row + (ahead - 1) * at.lanes < at.end; row += ahead * at.lanes) {
    Loaded loaded[ahead];
    LOCKSTEP_UNROLL
    for (int a = 0; a < ahead; ++a) loaded[a] = load(row + a * at.lanes);
    LOCKSTEP_UNROLL
    for (int a = 0; a < ahead; ++a) use(loaded[a], row + a * at.lanes);
  }
  for (; row < at.end; row += at.lanes) use(load(row), row);
}

// Adds the sums of a block's threads over lanes; the threads of lane 0 get the result. Threads are
// numbered lane * width + pack of columns.
template <int P, int K, class Float>
__device__ void add_lanes(SumsOf<K, Float> (&sums)[P], int width) {
  auto* shared = shared_memory<Float>();  // one after the other: threads, columns, sums
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  LOCKSTEP_UNROLL
  for (int n = 0; n < P * K; ++n) shared[n * threads + t] = sums[n / K].value[n % K];
  __syncthreads();
  for (int half = threads / 2; half >= width; half /= 2) {
    if (t < half) {
      LOCKSTEP_UNROLL
      for (int n = 0; n < P * K; ++n) shared[n * threads + t] += shared[n * threads + t + half];
    }
    __syncthreads();
  }
  if (t >= width) return;
  LOCKSTEP_UNROLL
  for (int n = 0; n < P * K; ++n) sums[n / K].value[n % K] = shared[n * threads + t];
}

// First stage, for P columns at once. term.columns(c) returns what the P columns from c on need,
// once for many rows; term.load(c, row) reads a row of them, and term.add(columns, loaded, sums)
// adds its summands. partials: chunks x columns.
template <int P, int K, class Term>
__global__ void column_partials(ColumnCut cut, Term term, Sums<K>* partials) {
  const ThreadRows at(cut);
  Sums<K> sums[P];
  if (at.column < cut.columns) {
    const auto columns = term.columns(at.column);
    for_rows(
        at, [&](int64_t row) { return term.load(at.column, row); },
        [&](const auto& loaded, int64_t) { term.add(columns, loaded, sums); });
  }
  add_lanes(sums, cut.width);
  if (at.lane != 0 || at.column >= cut.columns) return;
  LOCKSTEP_UNROLL
  for (int k = 0; k < P; ++k) partials[at.chunk * cut.columns + at.column + k] = sums[k];
}

// Columns of a block of the second stage: few, so that several blocks divide the partial sums.
inline constexpr int kTotalsWidth = 8;

// Second stage. finish(column, totals) receives the K sums of each column.
template <int K, class Finish>
__global__ void column_totals(ColumnCut cut, const Sums<K>* partials, Finish finish) {
  const int lane = static_cast<int>(threadIdx.x) / kTotalsWidth;
  const int lanes = static_cast<int>(blockDim.x) / kTotalsWidth;
  const int64_t column =
      int64_t{blockIdx.x} * kTotalsWidth + static_cast<int>(threadIdx.x) % kTotalsWidth;
  Totals<K> sums[1];
  if (column < cut.columns) {
    for (int64_t chunk = lane; chunk < cut.chunks; chunk += lanes) {
      const Sums<K> part = partials[chunk * cut.columns + column];
      for (int k = 0; k < K; ++k) sums[0].value[k] += static_cast<double>(part.value[k]);
    }
  }
  add_lanes(sums, kTotalsWidth);
  if (lane == 0 && column < cut.columns) finish(column, sums[0]);
}

// For all rows of all columns, with the partition of the sums: body.columns(c) and body.load(c,
// row) as above, then body.store(columns, loaded, c, row).
template <class Body>
__global__ void each_of_columns(ColumnCut cut, Body body) {
  const ThreadRows at(cut);
  if (at.column >= cut.columns) return;
  const auto columns = body.columns(at.column);
  for_rows(
      at, [&](int64_t row) { return body.load(at.column, row); },
      [&](const auto& loaded, int64_t row) { body.store(columns, loaded, at.column, row); });
}

template <class Body>
void launch_each_of_columns(const char* name, const ColumnCut& cut, void* stream,
                            const Body& body) {
  launch(name, each_of_columns<Body>, {.blocks = cut.tiles * cut.chunks}, stream, cut, body);
}

// Runs both stages. `scratch` has cut.bytes(K) bytes. P = cut.pack.
template <int P, int K, class Term, class Finish>
void launch_column_sums(const char* name, const ColumnCut& cut, const Term& term,
                        const Finish& finish, void* scratch, void* stream) {
  auto* partials = static_cast<Sums<K>*>(scratch);
  launch(name, column_partials<P, K, Term>,
         {.blocks = cut.tiles * cut.chunks, .shared_bytes = P * kBlock * sizeof(Sums<K>)}, stream,
         cut, term, partials);
  launch(name, column_totals<K, Finish>,
         {.blocks = (cut.columns + kTotalsWidth - 1) / kTotalsWidth,
          .shared_bytes = kBlock * sizeof(Totals<K>)},
         stream, cut, static_cast<const Sums<K>*>(partials), finish);
}

}  // namespace lockstep::kernels::cuda
