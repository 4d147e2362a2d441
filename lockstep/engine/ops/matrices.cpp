// Matrix products.
#include <algorithm>
#include <numeric>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"
#include "lockstep/engine/kernels/matrices/product_axes.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/reduce.h"
#include "lockstep/engine/ops/reshaping.h"
#include "lockstep/engine/ops/views.h"
#include "lockstep/engine/ops/with_bias.h"

namespace lockstep::ops {

std::vector<Value> product_tangent(const OpPtr& product, std::span<const Value> inputs,
                                   std::span<const Value> changes) {
  Value sum;
  const auto add_term = [&](const Value& term) { sum = sum.defined() ? sum + term : term; };
  if (changes[0].defined()) add_term(applied(product, {changes[0], inputs[1]}));
  if (changes[1].defined()) add_term(applied(product, {inputs[0], changes[1]}));
  if (changes.size() > 2 && changes[2].defined()) {
    const Shape factors[] = {inputs[0].shape(), inputs[1].shape()};
    const Shape y = infer_of_floats(*product, factors)[0];
    const Value bias = by_channel(changes[2], y);
    add_term(sum.defined() ? bias : broadcast_to(bias, y));
  }
  return {sum};
}

namespace {

class FullyConnected final : public FloatOp {
 public:
  explicit FullyConnected(bool bias) : bias_(bias) {}
  std::string_view type() const override { return "fully_connected"; }
  bool takes_narrow(size_t input) const override { return input == 0; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), bias_ ? 3 : 2, bias_ ? 3 : 2);
    const Shape &x = in[0], &w = in[1];
    const std::string received = " (input " + x.to_string() + ", weights " + w.to_string() + ")";
    if (x.rank() < 2 || x.elements() == 0) {
      throw InvalidArgument("[fully_connected] expected an input of n x ..." + received);
    }
    if (w.rank() != 2 || w[0] < 1 || w[1] != x.elements() / x[0]) {
      throw InvalidArgument("[fully_connected] an observation has " +
                            counted(x.elements() / x[0], "element") +
                            ", which do not fit the weights" + received);
    }
    if (bias_ && !(in[2] == Shape{w[0]})) {
      throw InvalidArgument("[fully_connected] expected a bias of " + counted(w[0], "element") +
                            ", received " + in[2].to_string());
    }
    return {Shape{x[0], w[0]}};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::FullyConnectedProblem{in[0], in[1].shape[0], bias_});
  }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return product_tangent(make_fully_connected(false), inputs, changes);
  }

 private:
  bool bias_;
};

}  // namespace

OpPtr make_fully_connected(bool bias) { return std::make_shared<FullyConnected>(bias); }

template <Operand T>
T fully_connected(const T& x, const Same<T>& weights, const Same<T>& bias) {
  return applied(make_fully_connected(bias.defined()), with_bias(x, weights, bias));
}
LOCKSTEP_INSTANTIATE_3(fully_connected)

namespace {

class Matmul final : public FloatOp {
 public:
  Matmul(bool transpose_a, bool transpose_b)
      : transpose_a_(transpose_a), transpose_b_(transpose_b) {}
  std::string_view type() const override { return "matmul"; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 2, 2);
    const auto spec = [](const Shape& shape) { return TensorSpec{shape, DType::f32, nullptr}; };
    return {kernels::product_axes({spec(in[0]), spec(in[1]), transpose_a_, transpose_b_}).dst};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::MatrixProductProblem{in[0].plain(), in[1].plain(),
                                                                 transpose_a_, transpose_b_});
  }

  // With y = a b: da = dy b^T and db = a^T dy, and the same of transposed factors.
  std::vector<Value> gradient(const AppliedOp& of) const override {
    const Value &a = of.inputs[0], &b = of.inputs[1], &d = of.diff_outputs[0];
    std::vector<Value> diffs(2);
    if (of.wanted[0]) {
      const Value da =
          transpose_a_ ? product(b, d, transpose_b_, true) : product(d, b, false, !transpose_b_);
      diffs[0] = sum_to(da, a.shape());
    }
    if (of.wanted[1]) {
      // Products that share b are one product of all their rows, whose gradient is one product.
      const bool one = b.shape().rank() == 2 && !transpose_a_;
      const Value left = one ? as_matrix(a) : a, diff = one ? as_matrix(d) : d;
      const Value db = transpose_b_ ? product(diff, left, true, transpose_a_)
                                    : product(left, diff, !transpose_a_, false);
      diffs[1] = sum_to(db, b.shape());
    }
    return diffs;
  }

 private:
  static Value product(const Value& a, const Value& b, bool transpose_a, bool transpose_b) {
    return applied(make_matmul(transpose_a, transpose_b), {a, b});
  }
  static Value as_matrix(const Value& x) {
    const Shape shape = x.shape();
    int64_t rows = 1;
    for (int axis = 0; axis < shape.rank() - 1; ++axis) rows *= shape[axis];
    return reshaped(x, Shape{rows, shape[-1]});
  }

  bool transpose_a_, transpose_b_;
};

// Inserts an axis of 1, or removes one. Other axes may have any size, as in the graphs of layers.
class AxisOfOne final : public Reshaping {
 public:
  enum class Change : uint8_t { insert, remove };
  // `at` counts from the end of the shape that has the axis: 1 is the last.
  AxisOfOne(Change change, int at) : change_(change), at_(at) {}
  std::string_view type() const override { return "matmul"; }

 private:
  Shape result(const Shape& x) const override {
    std::vector<int64_t> dims = x.dims();
    if (change_ == Change::insert) {
      dims.insert(dims.end() - (at_ - 1), 1);
    } else {
      dims.erase(dims.end() - at_);
    }
    return Shape(dims);
  }

  Change change_;
  int at_;
};

template <class T>
T inserted(const T& x, int at) {
  return applied(std::make_shared<AxisOfOne>(AxisOfOne::Change::insert, at), {x});
}
template <class T>
T removed(const T& x, int at) {
  return applied(std::make_shared<AxisOfOne>(AxisOfOne::Change::remove, at), {x});
}

template <class T>
T product_of(const T& a, const T& b) {
  const Shape of_a = a.shape(), of_b = b.shape();
  if (of_a.rank() == 0 || of_b.rank() == 0) {
    throw InvalidArgument("[matmul] expected matrices or vectors, received " + of_a.to_string() +
                              " and " + of_b.to_string(),
                          "use multiply() for scalars");
  }
  const bool row = of_a.rank() == 1, column = of_b.rank() == 1;
  T y = applied(make_matmul(false, false), {row ? inserted(a, 2) : a, column ? inserted(b, 1) : b});
  if (row) y = removed(y, 2);
  return column ? removed(y, 1) : y;
}

void check_vectors(const char* op, const Shape& a, const Shape& b, bool equal) {
  if (a.rank() == 1 && b.rank() == 1 && (!equal || a == b)) return;
  throw InvalidArgument("[" + std::string(op) + "] expected two vectors" +
                        (equal ? " of one length" : "") + ", received " + a.to_string() + " and " +
                        b.to_string());
}

template <class T>
T transposed(const T& x) {
  const Shape shape = x.shape();
  if (shape.rank() < 2) {
    throw InvalidArgument("[matrix_transpose] expected matrices of ... x m x n, received " +
                          shape.to_string());
  }
  std::vector<int> axes(static_cast<size_t>(shape.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::iter_swap(axes.end() - 1, axes.end() - 2);
  return permute_dims(x, axes);
}

}  // namespace

OpPtr make_matmul(bool transpose_a, bool transpose_b) {
  return std::make_shared<Matmul>(transpose_a, transpose_b);
}

#define LOCKSTEP_DEFINE_FOR(T)                                       \
  T matmul(const T& a, const T& b) {                                 \
    return named("matmul", [&] { return product_of(a, b); });        \
  }                                                                  \
  T dot(const T& a, const T& b) {                                    \
    return named("dot", [&] {                                        \
      check_vectors("dot", a.shape(), b.shape(), true);              \
      return product_of(a, b);                                       \
    });                                                              \
  }                                                                  \
  T outer(const T& a, const T& b) {                                  \
    return named("outer", [&] {                                      \
      check_vectors("outer", a.shape(), b.shape(), false);           \
      return multiply(inserted(a, 1), b);                            \
    });                                                              \
  }                                                                  \
  T matrix_transpose(const T& x) {                                   \
    return named("matrix_transpose", [&] { return transposed(x); }); \
  }
LOCKSTEP_DEFINE_FOR(Tensor)
LOCKSTEP_DEFINE_FOR(Value)
#undef LOCKSTEP_DEFINE_FOR

}  // namespace lockstep::ops
