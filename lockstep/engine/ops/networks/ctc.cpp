// The loss of sequences of labels without their positions.
#include "lockstep/engine/kernels/losses/ctc.h"

#include <fmt/format.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/networks/steps.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/outside_index.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {
namespace {

// The logarithm of the probability of what cannot be. Finite, so that no derivative is NaN.
constexpr double kNever = -1e30;

class CtcLoss final : public Op {
 public:
  explicit CtcLoss(const CtcParams& params) : params_(params) {}
  std::string_view type() const override { return "ctc_loss"; }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 4, 4);
    const Shape &x = in[0].shape, &labels = in[2].shape;
    if (x.rank() != 3 || x.elements() == 0 || labels.rank() != 2 || labels[0] != x[0] ||
        labels[1] == 0 || in[2].dtype != DType::i32) {
      throw InvalidArgument(
          fmt::format("[ctc_loss] expected logits of n x t x k and labels of "
                      "n x l i32, received {} and {} {}",
                      x.to_string(), labels.to_string(), name_of(in[2].dtype)));
    }
    check_floats(*this, in.first(1));
    check_lengths_spec("ctc_loss", in[1], x[0]);
    check_lengths_spec("ctc_loss", in[3], x[0]);
    if (params_.blank < 0 || params_.blank >= x[2]) {
      throw InvalidArgument(fmt::format(
          "[ctc_loss] blank must be one of the {} classes, received {}", x[2], params_.blank));
    }
    return {{Shape{x[0]}, DType::f32, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::CtcProblem{in[0].plain(), in[2].shape[1], params_.blank,
                                                       params_.zero_infinity});
  }
  std::vector<Value> decomposed(std::span<const Value> in) const override;

 private:
  CtcParams params_;
};

// The sum of exponentials of values, as their logarithm. No exponential overflows.
Value log_of_sum(const std::vector<Value>& terms) {
  Value top = terms[0];
  for (const Value& term : terms) top = maximum(top, term);
  top = detached(top);
  Value total;
  for (const Value& term : terms) {
    const Value e = exp(term - top);
    total = total.defined() ? total + e : e;
  }
  return top + log(total);
}

// Column s of the result is column s - count of x; before it, `before`.
Value shifted(const Value& x, int64_t count, double before) {
  const Value padded = pad(x, {{}, {count, 0}}, PadMode::constant, before);
  return slice(padded, {{}, {0, x.shape()[1]}});
}

// The classes of the states: labels with blanks around them, n x (2 l + 1), as floats.
Value classes_of_states(const Value& labels, const Value& label_lengths, int64_t blank) {
  const int64_t n = labels.shape()[0], l = labels.shape()[1];
  const Value known = astype(labels, DType::f32);
  const Value own = where(step_mask(label_lengths, l), known, static_cast<double>(blank));
  const Value blanks = full_like(own, Shape{n, l, 1}, static_cast<double>(blank));
  const Value pairs = reshaped(concat({blanks, expand_dims(own, 2)}, 2), Shape{n, 2 * l});
  return concat({pairs, full_like(own, Shape{n, 1}, static_cast<double>(blank))}, 1);
}

// The recursion over steps, as the kernel does it.
std::vector<Value> CtcLoss::decomposed(std::span<const Value> in) const {
  const Shape x = in[0].shape();
  const int64_t n = x[0], t = x[1], states = 2 * in[2].shape()[1] + 1;
  const Value valid = step_mask(in[1], t);
  const Value logits = where(expand_dims(valid, 2), in[0], 0);
  const Value classes = classes_of_states(in[2], in[3], params_.blank);
  const Value indices =
      broadcast_to(expand_dims(astype(classes, DType::i32), 1), Shape{n, t, states});
  const Value all = gather(log_softmax(logits, 2), indices, 2);
  const Value state = reshaped(arange(logits, 0, static_cast<double>(states)), Shape{1, states});
  const Value odd = not_equal(classes, static_cast<double>(params_.blank));
  const Value follows = odd * not_equal(classes, shifted(classes, 2, -1)) * less(1, state);
  const auto of_step = [&](int64_t step) {
    return squeeze(slice(all, {{}, {step, step + 1}}), {1});
  };
  Value forward = where(broadcast_to(less(state, 2), Shape{n, states}), of_step(0), kNever);
  for (int64_t step = 1; step < t; ++step) {
    const Value two = where(follows, shifted(forward, 2, kNever), kNever);
    const Value next = log_of_sum({forward, shifted(forward, 1, kNever), two}) + of_step(step);
    const Value here = broadcast_to(slice(valid, {{}, {step, step + 1}}), Shape{n, states});
    forward = where(here, next, forward);
  }
  // The last two states of each observation.
  const Value last = expand_dims(astype(in[3], DType::f32) * 2, 1);
  const Value ends = less_equal(state, last) * less(last - 2, state);
  const Value at_end = where(ends, forward, kNever);
  const Value top = detached(max(at_end, {1}, true));
  const Value total = sum(where(ends, exp(where(ends, at_end - top, 0)), 0), {1});
  const Value loss = -(squeeze(top, {1}) + log(total));
  const Value empty = equal(astype(in[1], DType::f32), 0);
  const double none = params_.zero_infinity ? 0 : std::numeric_limits<double>::infinity();
  const Value possible = less(loss, -kNever / 2) * (1 - empty);
  const Value nothing = empty * equal(astype(in[3], DType::f32), 0);
  return {where(possible, loss, where(nothing, 0, full_like(loss, loss.shape(), none)))};
}

void check_ctc_labels(const Tensor& labels, const Tensor& label_lengths, int64_t classes,
                      int64_t blank) {
  if (!labels.device().is_cpu() || !label_lengths.device().is_cpu()) return;
  const int64_t most = labels.shape()[1];
  for (int64_t i = 0; i < labels.shape()[0]; ++i) {
    for (int64_t l = 0; l < label_lengths.data<int32_t>()[i]; ++l) {
      const int32_t label = labels.data<int32_t>()[i * most + l];
      if (label >= 0 && label < classes && label != blank) continue;
      throw OutsideIndex(
          fmt::format(
              "[ctc_loss] label {} at position {} of observation {} is {}", label, l, i,
              label == blank ? "the blank class" : fmt::format("outside of 0 to {}", classes - 1)),
          {}, i, labels.shape()[0]);
    }
  }
}
void check_ctc_labels(const Value&, const Value&, int64_t, int64_t) {}

}  // namespace

OpPtr make_ctc_loss(const CtcParams& params) { return std::make_shared<CtcLoss>(params); }

template <Operand T>
T ctc_loss(const T& logits, const Same<T>& lengths, const Same<T>& labels,
           const Same<T>& label_lengths, const CtcParams& params) {
  return named("ctc_loss", [&] {
    const OpPtr op = make_ctc_loss(params);
    const auto spec_of = [](const T& x) { return TensorSpec{x.shape(), x.dtype(), nullptr}; };
    const TensorSpec specs[] = {spec_of(logits), spec_of(lengths), spec_of(labels),
                                spec_of(label_lengths)};
    op->infer(specs);  // throws what concerns the shapes first
    check_lengths("ctc_loss", lengths, logits.shape());
    check_lengths("ctc_loss", label_lengths, labels.shape(), "label length");
    check_ctc_labels(labels, label_lengths, logits.shape()[2], params.blank);
    return applied(op, {logits, lengths, labels, label_lengths});
  });
}
template Tensor ctc_loss(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const CtcParams&);
template Value ctc_loss(const Value&, const Value&, const Value&, const Value&, const CtcParams&);

}  // namespace lockstep::ops
