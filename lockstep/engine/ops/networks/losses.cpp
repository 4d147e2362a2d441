// Softmax, cross-entropy and the squared error: the losses that have kernels.
#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/losses/cross_entropy.h"
#include "lockstep/engine/kernels/losses/mean_squared_error.h"
#include "lockstep/engine/kernels/losses/softmax.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {

namespace {

class CrossEntropy final : public Op {
 public:
  explicit CrossEntropy(bool from_logits) : from_logits_(from_logits) {}
  std::string_view type() const override {
    return from_logits_ ? "softmax_cross_entropy" : "cross_entropy";
  }
  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 2, 2);
    const Shape &scores = in[0].shape, &labels = in[1].shape;
    if (scores.rank() != 2 || scores.elements() == 0 ||
        !(labels == Shape{scores[0]} || labels == scores)) {
      throw InvalidArgument(
          "[" + std::string(type()) +
          "] expected scores of n x c and n labels, or n x c class probabilities, received " +
          scores.to_string() + " and " + labels.to_string());
    }
    check_floats(*this, in.first(1));
    const bool shares = labels.rank() == 2;
    if (in[1].dtype != (shares ? DType::f32 : DType::i32)) {
      throw InvalidArgument("[" + std::string(type()) + "] expected " +
                            (shares ? "shares of f32" : "labels of i32") + ", received " +
                            std::string(name_of(in[1].dtype)));
    }
    const TensorSpec losses{Shape{scores[0]}, DType::f32, nullptr};
    if (from_logits_) return {losses, {scores, DType::f32, nullptr}};
    return {losses};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    const bool shares = in[1].shape.rank() == 2;
    return kernels::compile(table, kernels::CrossEntropyProblem{in[0], from_logits_, shares});
  }
  std::vector<Value> decomposed(std::span<const Value> in) const override {
    const Value& x = in[0];
    const Value shares = in[1].shape().rank() == 2 ? in[1] : one_hot(in[1], x.shape()[1]);
    if (from_logits_) {
      const Value above = x - detached(max(x, {1}, true));
      const Value surprise = log(sum(exp(above), {1}, true)) - above;
      return {sum(shares * surprise, {1}), Value()};
    }
    // A probability of 0 does not matter where its share is 0.
    const Value without = equal(shares, 0) * equal(x, 0);
    return {-sum(shares * log(where(without, 1, x)), {1})};
  }

 private:
  bool from_logits_;
};

}  // namespace

OpPtr make_cross_entropy() { return std::make_shared<CrossEntropy>(false); }
OpPtr make_softmax_cross_entropy() { return std::make_shared<CrossEntropy>(true); }

template <Operand T>
T cross_entropy(const T& probabilities, const Same<T>& labels) {
  return applied(make_cross_entropy(), {probabilities, labels});
}
LOCKSTEP_INSTANTIATE_2(cross_entropy)

template <Operand T>
T softmax_cross_entropy(const T& logits, const Same<T>& labels) {
  return applied(make_softmax_cross_entropy(), {logits, labels});
}
LOCKSTEP_INSTANTIATE_2(softmax_cross_entropy)

namespace {

class Softmax final : public FloatOp {
 public:
  std::string_view type() const override { return "softmax"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    if (in[0].rank() < 2 || in[0].elements() == 0) {
      throw InvalidArgument("[softmax] expected an input of n x c or n x c x space, received " +
                            in[0].to_string());
    }
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::SoftmaxProblem{in[0]});
  }
  // The difference before the product: it is 0 for changes that are the same in all classes.
  std::vector<Value> tangent(std::span<const Value> in,
                             std::span<const Value> changes) const override {
    const Value y = applied(shared_from_this(), {in[0]});
    return {y * (changes[0] - sum(y * changes[0], {1}, true))};
  }
  std::optional<FusedOps> fuse(const Op& next) const override {
    if (next.type() != "cross_entropy") return std::nullopt;
    return FusedOps{make_softmax_cross_entropy(), {1}, {0}};
  }
};

}  // namespace

OpPtr make_softmax() { return std::make_shared<Softmax>(); }

template <Operand T>
T softmax(const T& x) {
  return applied(make_softmax(), {x});
}
LOCKSTEP_INSTANTIATE_1(softmax)

template <Operand T>
T softmax(const T& x, int axis) {
  return named("softmax", [&] {
    const int at = resolved_axis("softmax", axis, x.shape());
    if (x.shape().elements() == 0) return x;
    const int64_t size = x.shape()[at];
    int64_t before = 1;
    for (int a = 0; a < at; ++a) before *= x.shape()[a];
    const Shape as_images{before, size, x.shape().elements() / (before * size)};
    return reshaped(softmax(reshaped(x, as_images)), x.shape());
  });
}
LOCKSTEP_INSTANTIATE_1(softmax, int)

namespace {

class MeanSquaredError final : public FloatOp {
 public:
  std::string_view type() const override { return "mean_squared_error"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 2, 2);
    if (!(in[0] == in[1]) || in[0].rank() < 1 || in[0].elements() == 0) {
      throw InvalidArgument(
          "[mean_squared_error] expected prediction and target of one shape, received " +
          in[0].to_string() + " and " + in[1].to_string());
    }
    return {Shape{in[0][0]}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::MeanSquaredErrorProblem{in[0]});
  }
  std::vector<Value> decomposed(std::span<const Value> in) const override {
    const Value difference =
        reshaped(in[0] - in[1], Shape{in[0].shape()[0], in[0].shape().without_batch().elements()});
    return {mean(square(difference), {1})};
  }
};

}  // namespace

OpPtr make_mean_squared_error() { return std::make_shared<MeanSquaredError>(); }

template <Operand T>
T mean_squared_error(const T& prediction, const Same<T>& target) {
  return applied(make_mean_squared_error(), {prediction, target});
}
LOCKSTEP_INSTANTIATE_2(mean_squared_error)

}  // namespace lockstep::ops
