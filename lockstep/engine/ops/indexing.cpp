#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/interface/element_types.h"
#include "lockstep/engine/kernels/shapes/indexed_axis.h"
#include "lockstep/engine/kernels/shapes/take.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/outside_index.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {
namespace {

class Take final : public Op {
 public:
  Take(int axis, bool per_element, bool zero_outside)
      : axis_(axis), per_element_(per_element), zero_outside_(zero_outside) {}
  std::string_view type() const override { return per_element_ ? "gather" : "take"; }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 2, 2);
    kernels::with_type(type(), in[0].dtype, [](auto) {});
    const int axis = resolved_axis(type(), axis_, in[0].shape);
    return {{kernels::indexed_axis(type(), in[0].shape, in[1], axis, per_element_).taken,
             in[0].dtype, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::TakeProblem{in[0].plain(), in[1].plain(),
                                                        resolved_axis(type(), axis_, in[0].shape),
                                                        per_element_, zero_outside_});
  }
  std::vector<Value> gradient(const AppliedOp& of) const override {
    std::vector<Value> diffs(2);
    if (of.wanted[0]) {
      const Shape x = of.inputs[0].shape();
      diffs[0] = applied(make_scatter_add(x, resolved_axis(type(), axis_, x), per_element_),
                         {of.diff_outputs[0], of.inputs[1]});
    }
    return diffs;
  }

 private:
  int axis_;
  bool per_element_, zero_outside_;
};

class ScatterAdd final : public Op {
 public:
  ScatterAdd(Shape dst, int axis, bool per_element)
      : dst_(std::move(dst)),
        axis_(resolved_axis("scatter_add", axis, dst_)),
        per_element_(per_element) {}
  std::string_view type() const override { return "scatter_add"; }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 2, 2);
    kernels::scattered_axis({dst_, in[0], in[1], axis_, per_element_});
    return {{dst_, DType::f32, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(
        table, kernels::ScatterAddProblem{dst_, in[0].plain(), in[1].plain(), axis_, per_element_});
  }
  // An update whose index is outside of the axis is not added, so its derivative is 0.
  std::vector<Value> gradient(const AppliedOp& of) const override {
    std::vector<Value> diffs(2);
    if (of.wanted[0]) {
      diffs[0] = applied(std::make_shared<Take>(axis_, per_element_, true),
                         {of.diff_outputs[0], of.inputs[1]});
    }
    return diffs;
  }

 private:
  Shape dst_;
  int axis_;
  bool per_element_;
};

// Eager calls on the CPU name the first index that is outside of the axis. Elsewhere the indices
// are not known before the op runs.
void check_indices(std::string_view op, const Tensor& indices, const Shape& x, int axis) {
  const bool wide = indices.dtype() == DType::i64;
  if (!indices.device().is_cpu() || (!wide && indices.dtype() != DType::i32)) return;
  const int64_t size = x[resolved_axis(op, axis, x)];
  const kernels::Indices all{indices.raw(), wide};
  for (int64_t i = 0; i < indices.shape().elements(); ++i) {
    if (all[i] >= 0 && all[i] < size) continue;
    const int64_t rows = indices.shape().rank() == 0 ? 0 : indices.shape()[0];
    throw OutsideIndex(
        "[" + std::string(op) + "] index " + std::to_string(all[i]) + " at position " +
            std::to_string(i) + " is outside of axis " + std::to_string(axis) + " of " +
            x.to_string(),
        size == 0 ? "the axis has no elements" : "indices are 0 to " + std::to_string(size - 1),
        rows == 0 ? 0 : i / (indices.shape().elements() / rows), rows);
  }
}
void check_indices(std::string_view, const Value&, const Shape&, int) {}

}  // namespace

OpPtr make_take(int axis, bool per_element) {
  return std::make_shared<Take>(axis, per_element, false);
}
OpPtr make_scatter_add(const Shape& shape, int axis, bool per_element) {
  return std::make_shared<ScatterAdd>(shape, axis, per_element);
}

template <Operand T>
T take(const T& x, const Same<T>& indices, int axis) {
  return named("take", [&] {
    check_indices("take", indices, x.shape(), axis);
    return applied(make_take(axis, false), {x, indices});
  });
}

template <Operand T>
T gather(const T& x, const Same<T>& indices, int axis) {
  return named("gather", [&] {
    check_indices("gather", indices, x.shape(), axis);
    return applied(make_take(axis, true), {x, indices});
  });
}

template <Operand T>
T scatter_add(const T& updates, const Same<T>& indices, const Shape& shape, int axis) {
  return named("scatter_add", [&] {
    check_indices("scatter_add", indices, shape, axis);
    return applied(make_scatter_add(shape, axis, false), {updates, indices});
  });
}

template <Operand T>
T embedding(const T& weights, const Same<T>& indices) {
  return named("embedding", [&] {
    if (weights.shape().rank() != 2) {
      throw InvalidArgument("[embedding] expected weights of v x d, received " +
                            weights.shape().to_string());
    }
    check_indices("embedding", indices, weights.shape(), 0);
    return applied(make_take(0, false), {weights, indices});
  });
}

LOCKSTEP_INSTANTIATE_2(take, int)
LOCKSTEP_INSTANTIATE_2(gather, int)
LOCKSTEP_INSTANTIATE_2(scatter_add, const Shape&, int)
LOCKSTEP_INSTANTIATE_2(embedding)

}  // namespace lockstep::ops
