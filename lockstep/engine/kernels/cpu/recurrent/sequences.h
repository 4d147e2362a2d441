// Which steps of which rows are valid, for kernels that compute all rows of a step together.
// Valid steps are numbered in the order of (row, step), so that their numbers depend neither on the
// capacity nor on how rows are sorted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels::cpu {

class Sequences {
 public:
  // Of n rows with at most `steps` steps, for the memory given to the constructor.
  static size_t bytes(int64_t n, int64_t steps) {
    return static_cast<size_t>(2 * (n + steps + 1)) * sizeof(int64_t);
  }

  // A length that is not 0 to `steps` counts as 0. Keeps `lengths`. memory: bytes().
  Sequences(const int32_t* lengths, int64_t n, int64_t steps, bool reverse, void* memory);

  // Valid steps of all rows.
  int64_t valid() const { return valid_; }
  int64_t longest() const { return longest_; }
  // Rows, sorted by length, the longest first, that have a step number `step`.
  int64_t rows_at(int64_t step) const { return rows_at_[step]; }
  // Row number k in that order.
  int64_t row(int64_t k) const { return order_[k]; }
  bool is_outside(int64_t row) const { return lengths_[row] < 0 || lengths_[row] > steps_; }
  int64_t length(int64_t row) const { return is_outside(row) ? 0 : lengths_[row]; }
  // The number of a row's first valid step.
  int64_t first(int64_t row) const { return first_[row]; }
  // Where the row's computation is at its step number `step`: a step in time, 0 to length - 1.
  int64_t time(int64_t row, int64_t step) const { return reverse_ ? length(row) - 1 - step : step; }

  // Copies `width` numbers of each valid step from rows x steps to valid steps, or back; `spread`
  // writes 0 at the other steps.
  void gather(const float* from, int64_t width, float* to) const;
  void spread(const float* from, int64_t width, float* to) const;
  // Writes 0 at the steps that are not valid.
  void clear_rest(float* of, int64_t width) const;
  // The state before each valid step: y (rows x steps x width) of the step before, h0 (rows x
  // width) before the first one.
  void gather_states(const float* y, const float* h0, int64_t width, float* to) const;

 private:
  const int32_t* const lengths_;
  const int64_t n_, steps_;
  const bool reverse_;
  int64_t valid_ = 0, longest_ = 0;
  int64_t *order_, *first_, *rows_at_;
};

}  // namespace lockstep::kernels::cpu
