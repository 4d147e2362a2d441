// Recurrent ops over sequences of different lengths.
#include "lockstep/engine/kernels/recurrent/recurrent.h"

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/networks/steps.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

using kernels::RecurrentCell;
using kernels::RecurrentOperands;

const char* name_of_cell(RecurrentCell cell) {
  return cell == RecurrentCell::lstm ? "lstm" : cell == RecurrentCell::gru ? "gru" : "rnn";
}

class Recurrent final : public Op {
 public:
  // `option`: reset_after of gru, relu of rnn.
  Recurrent(RecurrentCell cell, bool reverse, bool option)
      : cell_(cell), at_(cell), reverse_(reverse), option_(option) {}
  std::string_view type() const override { return name_of_cell(cell_); }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    const auto inputs = static_cast<size_t>(at_.inputs);
    check_count(*this, in.size(), inputs, inputs);
    const Shape &x = in[0].shape, &u = shape_of(in, at_.recurrent_weights);
    const int64_t gates = kernels::gates_of(cell_);
    if (x.rank() != 3) refuse("x of n x steps x c", x);
    if (u.rank() != 2 || u[1] < 1 || u[0] != gates * u[1]) {
      refuse("recurrent weights of " + (gates > 1 ? std::to_string(gates) + " " : "") + "h x h", u);
    }
    const int64_t hidden = u[1], rows = gates * hidden;
    const auto expect = [&](const char* name, int number, const Shape& shape) {
      if (number < 0 || shape_of(in, number) == shape) return;
      refuse(std::string(name) + " of " + shape.to_string() + " for x of " + x.to_string() +
                 " and recurrent weights of " + u.to_string(),
             shape_of(in, number));
    };
    expect("lengths", at_.lengths, Shape{x[0]});
    expect("weights", at_.weights, Shape{rows, x[2]});
    expect("a bias", at_.bias, Shape{rows});
    expect("a recurrent bias", at_.recurrent_bias, Shape{rows});
    const Shape state{x[0], hidden};
    expect("h0", at_.h0, state);
    expect("c0", at_.c0, state);
    const TensorSpec& lengths = in[static_cast<size_t>(at_.lengths)];
    if (lengths.dtype != DType::i32) {
      throw InvalidArgument("[" + std::string(type()) + "] expected lengths of i32, received " +
                            lengths.plain().to_string());
    }
    check_floats(*this, in.first(1));
    check_floats(*this, in.subspan(2));
    std::vector<TensorSpec> results{{Shape{x[0], x[1], hidden}, DType::f32, nullptr}};
    results.resize(static_cast<size_t>(at_.outputs), {state, DType::f32, nullptr});
    return results;
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    const bool gru = cell_ == RecurrentCell::gru;
    return kernels::compile(table, kernels::RecurrentProblem{.x = in[0].plain(),
                                                             .hidden = shape_of(in, at_.h0)[1],
                                                             .cell = cell_,
                                                             .reverse = reverse_,
                                                             .reset_after = !gru || option_,
                                                             .relu = !gru && option_});
  }

  // Step by step. Rows whose steps are over keep their state.
  std::vector<Value> decomposed(std::span<const Value> in) const override {
    const int64_t steps = in[0].shape()[1];
    const Value lengths = expand_dims(astype(input(in, at_.lengths), DType::f32), 1);
    State state{input(in, at_.h0) + 0.0, at_.c0 < 0 ? Value() : input(in, at_.c0) + 0.0};
    std::vector<Value> y(static_cast<size_t>(steps));
    Value arguments;
    if (steps > 0) {
      // What other steps hold reaches no derivative, not even NaN.
      const Value valid = expand_dims(step_mask(input(in, at_.lengths), steps), 2);
      arguments = matmul(where(valid, in[0], 0.0), matrix_transpose(input(in, at_.weights))) +
                  input(in, at_.bias);
    }
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t t = reverse_ ? steps - 1 - k : k;
      const Value valid = greater(lengths, static_cast<double>(t));
      const Value argument = squeeze(slice(arguments, {{}, {t, t + 1}}), {1});
      const State next = next_state(in, argument, state);
      y[static_cast<size_t>(t)] = where(valid, next.h, 0.0);
      state.h = where(valid, next.h, state.h);
      if (state.c.defined()) state.c = where(valid, next.c, state.c);
    }
    std::vector<Value> results{steps > 0 ? stack(y, 1) : Value(), state.h};
    if (state.c.defined()) results.push_back(state.c);
    return results;
  }

 private:
  struct State {
    Value h, c;
  };

  static const Shape& shape_of(std::span<const TensorSpec> in, int number) {
    return in[static_cast<size_t>(number)].shape;
  }
  static const Value& input(std::span<const Value> in, int number) {
    return in[static_cast<size_t>(number)];
  }
  [[noreturn]] void refuse(const std::string& expected, const Shape& received) const {
    throw InvalidArgument("[" + std::string(type()) + "] expected " + expected + ", received " +
                          received.to_string());
  }

  // Columns of gates [first, first + count).
  static Value of_gates(const Value& x, int64_t hidden, int64_t first, int64_t count) {
    return slice(x, {{}, {first * hidden, (first + count) * hidden}});
  }

  State next_state(std::span<const Value> in, const Value& x, const State& state) const {
    const Value& u = input(in, at_.recurrent_weights);
    const int64_t n = u.shape()[1];
    if (cell_ == RecurrentCell::gru) return {gru(in, x, state.h), {}};
    const Value all = x + matmul(state.h, matrix_transpose(u));
    if (cell_ == RecurrentCell::rnn) return {option_ ? relu(all) : tanh(all), {}};
    const auto gate = [&](int64_t k) { return of_gates(all, n, k, 1); };
    const Value c = sigmoid(gate(1)) * state.c + sigmoid(gate(0)) * tanh(gate(2));
    return {sigmoid(gate(3)) * tanh(c), c};
  }

  Value gru(std::span<const Value> in, const Value& x, const Value& h) const {
    const Value &u = input(in, at_.recurrent_weights), &d = input(in, at_.recurrent_bias);
    const int64_t n = u.shape()[1];
    const auto rows = [&](const Value& of, int64_t first, int64_t count) {
      return slice(of, {{first * n, (first + count) * n}});
    };
    const Value both =
        sigmoid(of_gates(x, n, 0, 2) + matmul(h, matrix_transpose(rows(u, 0, 2))) + rows(d, 0, 2));
    const Value r = of_gates(both, n, 0, 1), z = of_gates(both, n, 1, 1);
    const Value u_n = matrix_transpose(rows(u, 2, 1)), d_n = rows(d, 2, 1);
    const Value recurrent = option_ ? r * (matmul(h, u_n) + d_n) : matmul(r * h, u_n) + d_n;
    const Value next = tanh(of_gates(x, n, 2, 1) + recurrent);
    return next + z * (h - next);
  }

  RecurrentCell cell_;
  RecurrentOperands at_;
  bool reverse_, option_;
};

}  // namespace

OpPtr make_lstm(const LstmParams& params) {
  return kept_op<Recurrent>(RecurrentCell::lstm, params.reverse, false);
}
OpPtr make_gru(const GruParams& params) {
  return kept_op<Recurrent>(RecurrentCell::gru, params.reverse, params.reset_after);
}
OpPtr make_rnn(const RnnParams& params) {
  return kept_op<Recurrent>(RecurrentCell::rnn, params.reverse,
                            params.activation == RnnActivation::relu);
}

template <Operand T>
LstmResult<T> lstm(const T& x, const Same<T>& lengths, const Same<T>& weights,
                   const Same<T>& recurrent_weights, const Same<T>& bias, const Same<T>& h0,
                   const Same<T>& c0, const LstmParams& params) {
  return named("lstm", [&] {
    check_lengths("lstm", lengths, x.shape());
    const std::vector<T> all =
        all_outputs(make_lstm(params), {x, lengths, weights, recurrent_weights, bias, h0, c0});
    return LstmResult<T>{all[0], all[1], all[2]};
  });
}

template <Operand T>
RecurrentResult<T> gru(const T& x, const Same<T>& lengths, const Same<T>& weights,
                       const Same<T>& recurrent_weights, const Same<T>& bias,
                       const Same<T>& recurrent_bias, const Same<T>& h0, const GruParams& params) {
  return named("gru", [&] {
    check_lengths("gru", lengths, x.shape());
    const std::vector<T> all = all_outputs(
        make_gru(params), {x, lengths, weights, recurrent_weights, bias, recurrent_bias, h0});
    return RecurrentResult<T>{all[0], all[1]};
  });
}

template <Operand T>
RecurrentResult<T> rnn(const T& x, const Same<T>& lengths, const Same<T>& weights,
                       const Same<T>& recurrent_weights, const Same<T>& bias, const Same<T>& h0,
                       const RnnParams& params) {
  return named("rnn", [&] {
    check_lengths("rnn", lengths, x.shape());
    const std::vector<T> all =
        all_outputs(make_rnn(params), {x, lengths, weights, recurrent_weights, bias, h0});
    return RecurrentResult<T>{all[0], all[1]};
  });
}

#define LOCKSTEP_INSTANTIATE_FOR(T)                                                           \
  template LstmResult<T> lstm(const T&, const T&, const T&, const T&, const T&, const T&,     \
                              const T&, const LstmParams&);                                   \
  template RecurrentResult<T> gru(const T&, const T&, const T&, const T&, const T&, const T&, \
                                  const T&, const GruParams&);                                \
  template RecurrentResult<T> rnn(const T&, const T&, const T&, const T&, const T&, const T&, \
                                  const RnnParams&);
LOCKSTEP_INSTANTIATE_FOR(Tensor)
LOCKSTEP_INSTANTIATE_FOR(Value)
#undef LOCKSTEP_INSTANTIATE_FOR

}  // namespace lockstep::ops
