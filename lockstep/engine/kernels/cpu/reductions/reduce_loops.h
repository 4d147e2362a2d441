// Inner loops of reductions, for every instruction set.
#pragma once

#include <cstdint>
#include <limits>

#include "lockstep/engine/kernels/reductions/reduce.h"

namespace lockstep::kernels::cpu {

// The rows whose lanes are kept together at most.
inline constexpr int64_t kRowsTogether = 4;
// The positions whose elements are added to columns together at most.
inline constexpr int64_t kPositionsTogether = 8;

// lanes[r][j mod 16] takes row r's elements j < length in order, for `rows` rows.
template <class T>
using AddRows = void (*)(const float* const* x, int64_t rows, int64_t length, T* lanes);
// totals[r] takes row r's elements, a block, for `rows` rows of `length` elements.
template <class T>
using ReduceRows = void (*)(const float* const* x, int64_t rows, int64_t length, T* totals);
// Reduces the lanes of each row by the tree of reduce_axes.h, and totals[r] takes the result of row
// r.
template <class T>
using FoldLanes = void (*)(const T* lanes, int64_t rows, T* totals);
// columns[c] takes x[p][c] for all positions p in order, for c below `count`.
template <class T>
using AddColumns = void (*)(const float* const* x, int64_t positions, int64_t count, T* columns);

// Loops for one kind of reduction with running results of type T.
template <class T>
struct ReduceLoops {
  ReduceRows<T> reduce_rows;
  AddRows<T> add_rows;
  FoldLanes<T> fold_lanes;
  AddColumns<T> add_columns;
};

ReduceLoops<double> sum_loops();
ReduceLoops<double> product_loops();
ReduceLoops<float> maximum_loops();
ReduceLoops<float> minimum_loops();

}  // namespace lockstep::kernels::cpu
