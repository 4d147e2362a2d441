// Functions of the steps of sequences, made of other ops. Sums over steps add one after the other
// in blocks of a fixed length (reduce_axes.h), so zeros at the end change no bit.
#include "lockstep/engine/ops/networks/steps.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/attention/attention.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/outside_index.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {

void check_lengths_spec(std::string_view op, const TensorSpec& lengths, int64_t n) {
  if (lengths.shape == Shape{n} && lengths.dtype == DType::i32) return;
  throw InvalidArgument(
      fmt::format("[{}] expected lengths of {} i32, one for each observation, "
                  "received {} {}",
                  op, n, lengths.shape.to_string(), name_of(lengths.dtype)));
}

namespace {

// The shape of a mask of steps, n x t, that broadcasts to x.
template <class T>
T over_steps(const T& mask, const Shape& x) {
  std::vector<int64_t> dims(static_cast<size_t>(x.rank()), 1);
  dims[0] = x[0];
  if (mask.shape().rank() == 2) dims[1] = x[1];
  return reshaped(mask, Shape(dims));
}

void check_sequences(std::string_view op, const Shape& x, int64_t most_steps) {
  if (x.rank() >= 2 && x[1] <= most_steps) return;
  throw InvalidArgument(
      fmt::format("[{}] expected sequences of n x t x ... with at most {} steps, received {}", op,
                  most_steps, x.to_string()));
}

void check_not_empty(std::string_view op, const Shape& x) {
  if (x.elements() > 0) return;
  throw InvalidArgument(
      fmt::format("[{}] expected sequences with steps, received {}", op, x.to_string()));
}

// Lengths as f32, at most t.
template <class T>
T lengths_as_floats(const T& lengths, int64_t t) {
  return clip(astype(lengths, DType::f32), 0, static_cast<double>(t));
}

}  // namespace

void check_lengths(std::string_view op, const Value& lengths, const Shape& x, std::string_view) {
  check_sequences(op, x, kernels::kMostSteps);
  check_lengths_spec(op, {lengths.shape(), lengths.dtype(), nullptr}, x[0]);
}
void check_lengths(std::string_view op, const Tensor& lengths, const Shape& x,
                   std::string_view what) {
  check_sequences(op, x, kernels::kMostSteps);
  check_lengths_spec(op, lengths.spec(), x[0]);
  if (!lengths.device().is_cpu()) return;
  for (int64_t i = 0; i < x[0]; ++i) {
    const int32_t length = lengths.data<int32_t>()[i];
    if (length >= 0 && length <= x[1]) continue;
    throw OutsideIndex(fmt::format("[{}] {} {} of observation {} is outside of 0 to {}, the steps "
                                   "of {}",
                                   op, what, length, i, x[1], x.to_string()),
                       {}, i, x[0]);
  }
}

template <Operand T>
T step_mask(const T& lengths, int64_t steps) {
  return named("step_mask", [&] {
    if (steps < 1 || steps > kernels::kMostSteps || lengths.shape().rank() != 1) {
      throw InvalidArgument(
          fmt::format("[step_mask] expected lengths of n i32 and 1 to 2^24 "
                      "steps, received {} and {}",
                      lengths.shape().to_string(), steps));
    }
    check_lengths("step_mask", lengths, Shape{lengths.shape()[0], steps});
    const T floats = astype(lengths, DType::f32);
    return less(arange(floats, 0, static_cast<double>(steps)), expand_dims(floats, 1));
  });
}
LOCKSTEP_INSTANTIATE_1(step_mask, int64_t)

template <Operand T>
T last_step(const T& x, const Same<T>& lengths) {
  return named("last_step", [&] {
    check_lengths("last_step", lengths, x.shape());
    check_not_empty("last_step", x.shape());
    const Shape shape = x.shape();
    const T length = lengths_as_floats(lengths, shape[1]);
    std::vector<int64_t> of_step = shape.dims();
    of_step[1] = 1;
    const T at = over_steps(astype(maximum(length - 1, 0), DType::i32), shape);
    const T found = gather(x, broadcast_to(at, Shape(of_step)), 1);
    // Step 0 of an empty sequence may hold anything.
    return squeeze(where(over_steps(length, shape), found, 0), {1});
  });
}
LOCKSTEP_INSTANTIATE_2(last_step)

Value chosen_steps(const Value& x, const Value& at) {
  const Shape shape = x.shape();
  const int64_t n = shape[0], steps = shape[1];
  if (n * steps > kernels::kMostSteps) {
    throw InvalidArgument(
        fmt::format("[steps] cannot choose steps of {}: more than 2^24 in all", shape.to_string()));
  }
  const Value row = expand_dims(arange(at, 0, static_cast<double>(n)), 1);
  const Value index = reshaped(astype(row * static_cast<double>(steps) + at, DType::i32),
                               Shape{at.shape().elements()});
  std::vector<int64_t> together = shape.dims(), apart = together;
  together.erase(together.begin());
  together[0] = n * steps;
  apart[1] = at.shape()[1];
  return reshaped(take(reshaped(x, Shape(together)), index, 0), Shape(apart));
}

template <Operand T>
T mean_over_steps(const T& x, const Same<T>& lengths) {
  return named("mean_over_steps", [&] {
    check_lengths("mean_over_steps", lengths, x.shape());
    check_not_empty("mean_over_steps", x.shape());
    const Shape shape = x.shape();
    const T total = sum(where(over_steps(step_mask(lengths, shape[1]), shape), x, 0), {1}, true);
    const T count = maximum(lengths_as_floats(lengths, shape[1]), 1);
    return squeeze(total / over_steps(count, shape), {1});
  });
}
LOCKSTEP_INSTANTIATE_2(mean_over_steps)

StepStatistics statistics_of_steps(const Value& x, const Value& lengths) {
  check_lengths("batch_normalization", lengths, x.shape());
  check_not_empty("batch_normalization", x.shape());
  const Shape shape = x.shape();
  const int64_t channels = shape[2],
                positions = shape.elements() / (shape[0] * shape[1] * channels);
  std::vector<int> of_row{1};
  std::vector<int64_t> across(static_cast<size_t>(shape.rank()), 1);
  across[2] = channels;
  for (int axis = 3; axis < shape.rank(); ++axis) of_row.push_back(axis);
  const Value mask = step_mask(lengths, shape[1]), valid = over_steps(mask, shape);
  StepStatistics s;
  s.count = reshaped(sum(sum(mask, {1}), {0}) * static_cast<double>(positions), Shape{1});
  // Row by row, so that the number of steps moves no value to another block of a sum.
  const Value least = maximum(s.count, 1);
  const auto mean_of = [&](const Value& of) { return sum(sum(of, of_row), {0}) / least; };
  const auto from = [&](const Value& values, const Value& mean) {
    return where(valid, values - reshaped(mean, Shape(across)), 0);
  };
  const Value all = where(valid, x, 0), mean = mean_of(all), near = from(all, mean);
  // What f32 has lost of a mean far from 0.
  const Value rest = detached(mean_of(near));
  s.mean = mean + rest;
  s.from_mean = from(near, rest);
  s.variance = mean_of(square(s.from_mean));
  return s;
}

template <Operand T>
T rms_norm(const T& x, const Same<T>& scale, double epsilon) {
  return named("rms_norm", [&] {
    const Shape shape = x.shape();
    if (shape.rank() < 1 || shape.elements() == 0 || !(scale.shape() == Shape{shape[-1]})) {
      throw InvalidArgument(
          fmt::format("[rms_norm] expected x of ... x c and a scale of c, "
                      "received {} and {}",
                      shape.to_string(), scale.shape().to_string()));
    }
    if (!(static_cast<float>(epsilon) > 0) || !std::isfinite(static_cast<float>(epsilon))) {
      throw InvalidArgument(
          fmt::format("[rms_norm] epsilon must be above 0 and finite, received {}", epsilon));
    }
    return x * rsqrt(mean(square(x), {-1}, true) + epsilon) * scale;
  });
}
LOCKSTEP_INSTANTIATE_2(rms_norm, double)

namespace {

// (first + t) * base^(-i / count) for step t and 0 <= i < count: steps x count.
template <class T>
T angles(const T& like, int64_t steps, int64_t first, int64_t count, double base) {
  const auto from = static_cast<double>(first);
  const T step = arange(like, from, from + static_cast<double>(steps));
  const T frequency = exp(arange(like, 0, static_cast<double>(count)) *
                          (-std::log(base) / static_cast<double>(count)));
  return expand_dims(step, 1) * frequency;
}

void check_base(std::string_view op, double base) {
  if (base >= 1 && std::isfinite(base)) return;
  throw InvalidArgument(
      fmt::format("[{}] base must be at least 1 and finite, received {}", op, base));
}

}  // namespace

template <Operand T>
T rotary(const T& x, const RotaryParams& params) {
  return named("rotary", [&] {
    const Shape shape = x.shape();
    if (shape.rank() != 3 || shape.elements() == 0 || params.heads < 1 || params.heads > shape[2] ||
        shape[2] % (2 * params.heads) != 0) {
      throw InvalidArgument(
          fmt::format("[rotary] expected x of n x t x c, with an even number of channels in each "
                      "of {} heads, received {}",
                      params.heads, shape.to_string()));
    }
    check_base("rotary", params.base);
    if (params.first < 0 || params.first > kernels::kMostSteps - shape[1]) {
      throw InvalidArgument(
          fmt::format("[rotary] {} steps from position {} on are outside of 0 to {}", shape[1],
                      params.first, kernels::kMostSteps));
    }
    const int64_t n = shape[0], t = shape[1], pairs = shape[2] / (2 * params.heads);
    // The axis of the two elements of a pair.
    const int axis = params.interleaved ? 4 : 3;
    const T angle = reshaped(angles(x, t, params.first, pairs, params.base),
                             params.interleaved ? Shape{t, 1, pairs, 1} : Shape{t, 1, 1, pairs});
    const T in_pairs = reshaped(x, params.interleaved ? Shape{n, t, params.heads, pairs, 2}
                                                      : Shape{n, t, params.heads, 2, pairs});
    const std::vector<T> halves = split(in_pairs, 2, axis);
    const T c = cos(angle), s = sin(angle);
    return reshaped(concat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, axis),
                    shape);
  });
}
LOCKSTEP_INSTANTIATE_1(rotary, const RotaryParams&)

template <Operand T>
T sinusoidal_positions(const T& like, int64_t steps, int64_t channels, double base) {
  return named("sinusoidal_positions", [&] {
    if (steps < 1 || steps > kernels::kMostSteps || channels < 1) {
      throw InvalidArgument(
          fmt::format("[sinusoidal_positions] expected 1 to 2^24 steps and 1 or "
                      "more channels, received {} and {}",
                      steps, channels));
    }
    check_base("sinusoidal_positions", base);
    const int64_t pairs = (channels + 1) / 2;
    // An odd number of channels has the frequencies of base^(-2 i / channels), too.
    const double own =
        std::pow(base, 2.0 * static_cast<double>(pairs) / static_cast<double>(channels));
    const T angle = expand_dims(angles(like, steps, 0, pairs, own), 2);
    const T both = reshaped(concat({sin(angle), cos(angle)}, 2), Shape{steps, 2 * pairs});
    return 2 * pairs == channels ? both : slice(both, {{}, {0, channels}});
  });
}
LOCKSTEP_INSTANTIATE_1(sinusoidal_positions, int64_t, int64_t, double)

}  // namespace lockstep::ops
