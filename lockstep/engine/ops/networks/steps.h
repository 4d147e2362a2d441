// Lengths of sequences, as ops take them: i32 [n], and step t of observation i is valid if t is
// below its length.
#pragma once

#include <string_view>

#include "lockstep/engine/ops/ops.h"

namespace lockstep::ops {

// Throws InvalidArgument, naming the op, unless `lengths` are n numbers of i32.
void check_lengths_spec(std::string_view op, const TensorSpec& lengths, int64_t n);
// Throws InvalidArgument, naming the op, unless `x` is n x t x ... and the lengths fit. Eager calls
// on the CPU also throw OutsideIndex for lengths outside of 0 to t, which `what` names. Elsewhere
// they are not known before the op runs.
void check_lengths(std::string_view op, const Tensor& lengths, const Shape& x,
                   std::string_view what = "length");
void check_lengths(std::string_view op, const Value& lengths, const Shape& x,
                   std::string_view what = "length");

// Chosen steps of x, n x t x ...: n x k x ... at the steps `at`, n x k whole numbers of f32 from 0
// to t - 1. Throws InvalidArgument if n * t is above 2^24, from where f32 does not count.
Value chosen_steps(const Value& x, const Value& at);

// Statistics of each channel over the valid steps of x, n x t x c or n x t x c x space. Steps that
// no sequence needs change no bit of them.
struct StepStatistics {
  Value mean, variance;  // c; the variance is divided by the count; 0 where the count is 0
  Value count;           // 1: values of a channel
  Value from_mean;       // x - mean, 0 after the ends; the gradient flows through the mean
};
StepStatistics statistics_of_steps(const Value& x, const Value& lengths);

}  // namespace lockstep::ops
