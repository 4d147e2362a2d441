// Random programs of ops: statements that compute a value each, from inputs and earlier values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep::random_expressions {

// Settings are those of the op's function, by name.
struct Statement {
  std::string op;
  std::vector<int> in = {};    // values
  std::vector<int> axes = {};  // also an axis alone
  bool keep_dims = false;
  std::vector<double> numbers = {};  // limits, a scale, a number that is added
  std::vector<int64_t> sizes = {};   // a shape, repeats, widths, starts, stops and steps
};

struct Program {
  std::vector<Shape> inputs;
  std::vector<Statement> statements;  // the result is the last value

  nlohmann::ordered_json description() const;
};

// Program number `number` of a seed.
Program random_program(uint64_t seed, uint64_t number);

// Lengths t, t - 1 and so on of n sequences with t steps, at least 0.
template <class T>
T lengths_of(const T& x) {
  const T before = ops::arange(x, 0, static_cast<double>(x.shape()[0]));
  return ops::astype(ops::maximum(static_cast<double>(x.shape()[1]) - before, 0), DType::i32);
}

// The result of a statement. T: Tensor or Value.
template <class T>
T result_of(const Statement& s, const std::vector<T>& x) {
#define LOCKSTEP_UNARY(name, text) \
  if (s.op == #name) return ops::name(x[0]);
  LOCKSTEP_UNARY_OPS(LOCKSTEP_UNARY)
#undef LOCKSTEP_UNARY
#define LOCKSTEP_BINARY(name, text) \
  if (s.op == #name) return x.size() > 1 ? ops::name(x[0], x[1]) : ops::name(x[0], s.numbers[0]);
  LOCKSTEP_BINARY_OPS(LOCKSTEP_BINARY)
#undef LOCKSTEP_BINARY
  const auto axis = [&] { return s.axes[0]; };
  if (s.op == "where") return ops::where(x[0], x[1], x[2]);
  if (s.op == "clip") return ops::clip(x[0], s.numbers[0], s.numbers[1]);
  if (s.op == "relu") return ops::relu(x[0]);
  if (s.op == "leaky_relu") return ops::leaky_relu(x[0], s.numbers[0]);
  if (s.op == "elu") return ops::elu(x[0], s.numbers[0]);
  if (s.op == "gelu") return ops::gelu(x[0]);
  if (s.op == "swish") return ops::swish(x[0]);
  if (s.op == "tanh") return ops::tanh(x[0]);
  if (s.op == "sigmoid") return ops::sigmoid(x[0]);
  if (s.op == "softplus") return ops::softplus(x[0]);
  if (s.op == "greater") return ops::greater(x[0], x[1]);
  if (s.op == "not_equal") return ops::not_equal(x[0], x[1]);
  if (s.op == "logical_and") return ops::logical_and(x[0], x[1]);
  if (s.op == "logical_or") return ops::logical_or(x[0], x[1]);
  if (s.op == "sum") return ops::sum(x[0], s.axes, s.keep_dims);
  if (s.op == "mean") return ops::mean(x[0], s.axes, s.keep_dims);
  if (s.op == "prod") return ops::prod(x[0], s.axes, s.keep_dims);
  if (s.op == "max") return ops::max(x[0], s.axes, s.keep_dims);
  if (s.op == "min") return ops::min(x[0], s.axes, s.keep_dims);
  if (s.op == "var") return ops::var(x[0], s.axes, s.keep_dims, s.numbers[0]);
  if (s.op == "std") return ops::std(x[0], s.axes, s.keep_dims, s.numbers[0]);
  if (s.op == "norm") return ops::norm(x[0], s.axes, s.keep_dims);
  if (s.op == "logsumexp") return ops::logsumexp(x[0], s.axes, s.keep_dims);
  if (s.op == "softmax") return ops::softmax(x[0], axis());
  if (s.op == "log_softmax") return ops::log_softmax(x[0], axis());
  if (s.op == "cumsum") return ops::cumsum(x[0], axis());
  if (s.op == "tril") return ops::tril(x[0], s.sizes[0]);
  if (s.op == "triu") return ops::triu(x[0], s.sizes[0]);
  if (s.op == "multiply_arange") {
    const double step = s.numbers[1], stop = static_cast<double>(x[0].shape()[-1]) - 0.5;
    return x[0] * ops::arange(x[0], s.numbers[0], s.numbers[0] + stop * step, step);
  }
  if (s.op == "add_linspace") {
    return x[0] + ops::linspace(x[0], s.numbers[0], s.numbers[1], x[0].shape()[-1]);
  }
  if (s.op == "triplet_margin") return ops::triplet_margin(x[0], x[1], x[2], s.numbers[0]);
  // Of labels that are computed: the classes of the largest values.
  if (s.op == "nll") {
    return ops::nll(x[0], ops::argmax(x[1], 1), {}, static_cast<int64_t>(s.numbers[0]));
  }
  if (s.op == "softmax_cross_entropy") {
    return ops::softmax_cross_entropy(
        x[0], ops::argmax(x[1], 1), ops::linspace(x[0], 0.5, 2, x[0].shape()[1]),
        {.ignore_index = static_cast<int64_t>(s.numbers[0]), .label_smoothing = s.numbers[1]});
  }
  // Indices that are computed, from 0 to before the size of the second value's axis.
  if (s.op == "take_by_argmax") return ops::take(x[0], ops::argmax(x[1], s.axes[1]), axis());
  if (s.op == "gather_by_argmin") {
    return ops::gather(x[0], ops::argmin(x[1], axis(), true), axis());
  }
  if (s.op == "broadcast_to") return ops::broadcast_to(x[0], Shape(s.sizes));
  if (s.op == "permute_dims") return ops::permute_dims(x[0], s.axes);
  if (s.op == "slice") {
    std::vector<ops::SliceRange> ranges;
    for (size_t i = 0; i < s.sizes.size(); i += 3) {
      ranges.push_back({s.sizes[i], s.sizes[i + 1], s.sizes[i + 2]});
      // Before the first element, which no position says.
      if (s.sizes[i + 2] < 0 && s.sizes[i + 1] < 0) ranges.back().stop.reset();
    }
    return ops::slice(x[0], ranges);
  }
  if (s.op == "expand_dims") return ops::expand_dims(x[0], axis());
  if (s.op == "squeeze") return ops::squeeze(x[0], s.axes);
  if (s.op == "flip") return ops::flip(x[0], s.axes);
  if (s.op == "roll") return ops::roll(x[0], s.sizes[0], axis());
  if (s.op == "tile") return ops::tile(x[0], s.sizes);
  if (s.op == "diagonal") return ops::diagonal(x[0]);
  if (s.op == "split") return ops::split(x[0], s.sizes[0], axis())[static_cast<size_t>(s.sizes[1])];
  if (s.op == "stack") return ops::stack(x, axis());
  if (s.op == "concat") return ops::concat(x, axis());
  if (s.op == "matmul") return ops::matmul(x[0], x[1]);
  if (s.op == "matrix_transpose") return ops::matrix_transpose(x[0]);
  if (s.op == "attention") {
    return ops::attention(x[0], x[1], x[2], lengths_of(x[0]), lengths_of(x[0]),
                          {.heads = s.sizes[0], .causal = s.sizes[1] != 0});
  }
  if (s.op == "rotary") {
    return ops::rotary(x[0],
                       {.heads = s.sizes[0], .first = s.sizes[1], .interleaved = s.sizes[2] != 0});
  }
  if (s.op == "rms_norm") {
    return ops::rms_norm(x[0], ops::linspace(x[0], 0.5, 2, x[0].shape()[2]), 0.1);
  }
  if (s.op == "last_step") return ops::last_step(x[0], lengths_of(x[0]));
  if (s.op == "mean_over_steps") return ops::mean_over_steps(x[0], lengths_of(x[0]));
  if (s.op.starts_with("pad_")) {
    std::vector<ops::PadWidth> widths;
    for (size_t i = 0; i < s.sizes.size(); i += 2) widths.push_back({s.sizes[i], s.sizes[i + 1]});
    const auto mode = s.op == "pad_constant"  ? ops::PadMode::constant
                      : s.op == "pad_reflect" ? ops::PadMode::reflect
                                              : ops::PadMode::edge;
    return ops::pad(x[0], widths, mode, s.numbers[0]);
  }
  throw InvalidArgument("[random_expressions] unknown op " + s.op);
}

// The values of a program, inputs first.
template <class T>
std::vector<T> values_of(const Program& program, std::vector<T> values) {
  for (const Statement& s : program.statements) {
    std::vector<T> in;
    for (const int v : s.in) in.push_back(values[static_cast<size_t>(v)]);
    values.push_back(result_of(s, in));
  }
  return values;
}

}  // namespace lockstep::random_expressions
