// Sequences that run in groups of one capacity of steps, so that a plan depends on a sequence's own
// length alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// The number of observations that predict() runs together on the CPU, which is the size of a shard.
// The kernels, and therefore the rounding, may depend on it, so it is independent of the caller's
// batch.
inline constexpr int64_t kPredictedTogether = 16;

// The lengths of sequences whose steps are all valid.
Tensor whole_lengths(const Tensor& input);

class SequenceGroups {
 public:
  // Runs `together` observations, of which the first ones are these rows of the input. The others
  // have no steps.
  using Run =
      std::function<Tensor(const Tensor& x, const Tensor& lengths, std::span<const int64_t> rows)>;

  SequenceGroups(const Tensor& input, const Tensor& lengths, int64_t together)
      : input_(input.to({}).to_row_major()), lengths_(lengths.to({})), together_(together) {}

  // Returns the results of all rows; `sequence`: they are sequences, with zeros after their ends.
  Tensor run(const Run& run, bool sequence, Device device) const;

 private:
  int64_t observations() const { return input_.shape()[0]; }
  int64_t length(int64_t row) const { return lengths_.data<int32_t>()[row]; }
  Tensor lengths_of(std::span<const int64_t> rows) const;
  Tensor steps_of_rows(std::span<const int64_t> rows, int64_t capacity) const;
  Tensor results(const Shape& scores, bool sequence) const;
  // `capacity`: of the scores' steps; 0: they are not sequences.
  void put(const Tensor& scores, std::span<const int64_t> rows, int64_t capacity,
           const Tensor& result) const;

  const Tensor input_, lengths_;
  const int64_t together_;
};

}  // namespace lockstep
