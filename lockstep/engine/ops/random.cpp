// Random numbers and dropout.
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/kernels/elementwise/dropout.h"
#include "lockstep/engine/kernels/elementwise/random_uniform.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {

namespace {

class RandomUniform final : public FloatOp {
 public:
  explicit RandomUniform(uint64_t draw) : draw_(draw) {}
  std::string_view type() const override { return "random_uniform"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    if (in[0].rank() < 1) {
      throw InvalidArgument("[random_uniform] expected a value of n x ..., received " +
                            in[0].to_string());
    }
    return {in[0]};
  }
  bool draws_random_numbers() const override { return true; }
  bool has_zero_slope() const override { return true; }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::RandomUniformProblem{in[0].shape, draw_});
  }

 private:
  uint64_t draw_;
};

// Box and Muller 1958, from uniform numbers in [0, 1).
template <class T>
T normal(const T& u, const T& v) {
  return sqrt(log(1 - u) * -2) * cos(v * (2 * std::numbers::pi));
}

// The second draw of random_normal().
constexpr uint64_t kSecondDraw = 0x9E3779B97F4A7C15;

template <class T>
T bernoulli(const T& uniform, const T& p) {
  return less(uniform, p);
}

}  // namespace

OpPtr make_random_uniform(uint64_t draw) { return kept_op<RandomUniform>(draw); }

Tensor random_uniform(const Tensor& like, uint64_t draw, const RandomContext& step) {
  return apply_op(make_random_uniform(draw), {like}, step)[0];
}
Value random_uniform(const Value& like, uint64_t draw) {
  return applied(make_random_uniform(draw), {like});
}

Tensor random_normal(const Tensor& like, uint64_t draw, const RandomContext& step) {
  return named("random_normal", [&] {
    const Tensor u = random_uniform(like, draw, step);
    return normal(u, random_uniform(like, draw + kSecondDraw, step));
  });
}
Value random_normal(const Value& like, uint64_t draw) {
  return named("random_normal", [&] {
    const Value u = random_uniform(like, draw);
    return normal(u, random_uniform(like, draw + kSecondDraw));
  });
}

Tensor random_bernoulli(const Tensor& p, uint64_t draw, const RandomContext& step) {
  return named("random_bernoulli", [&] { return bernoulli(random_uniform(p, draw, step), p); });
}
Value random_bernoulli(const Value& p, uint64_t draw) {
  return named("random_bernoulli", [&] { return bernoulli(random_uniform(p, draw), p); });
}

namespace {

class Dropout final : public FloatOp {
 public:
  Dropout(double p, uint64_t layer) : p_(p), layer_(layer) {}
  std::string_view type() const override { return "dropout"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    if (in[0].rank() < 1) {
      throw InvalidArgument("[dropout] expected an input of n x ..., received " +
                            in[0].to_string());
    }
    return {in[0]};
  }
  bool draws_random_numbers() const override { return p_ > 0; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value>,
                             std::span<const Value> changes) const override {
    return apply_all(shared_from_this(), changes);
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::DropoutProblem{in[0], p_, layer_});
  }

 private:
  double p_;
  uint64_t layer_;
};

}  // namespace

OpPtr make_dropout(double p, uint64_t layer) {
  if (!(p >= 0 && p < 1)) {
    throw InvalidArgument("[dropout] expected a probability of at least 0 and below 1, received " +
                          std::to_string(p));
  }
  return std::make_shared<Dropout>(p, layer);
}

Tensor dropout(const Tensor& x, double p, uint64_t layer, const RandomContext& step) {
  return apply_op(make_dropout(p, layer), {x}, step)[0];
}
Value dropout(const Value& x, double p, uint64_t layer) {
  return applied(make_dropout(p, layer), {x});
}

}  // namespace lockstep::ops
