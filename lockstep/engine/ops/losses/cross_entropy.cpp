#include "lockstep/engine/kernels/losses/cross_entropy.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/shapes/views.h"

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

}  // namespace lockstep::ops
