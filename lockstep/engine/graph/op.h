// The interface of an op, which holds no data. Eager calls, the tape and plans all use it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/graph/value.h"
#include "lockstep/engine/kernels/backends/tables.h"

namespace lockstep {

namespace kernels {
struct Instruction;
}

// Two consecutive ops replaced by one. The fused op takes the inputs of the first op, then those of
// the second op without the intermediate value.
struct FusedOps {
  OpPtr op;
  // For each output of the first (second) op, the index of the fused op's output that replaces it.
  // -1: no output replaces it, so fusing is allowed only if no other op reads it.
  std::vector<int> first_outputs;
  std::vector<int> second_outputs;
};

// Two consecutive ops of which the second takes over the last input of the first, as its own last.
struct HandedOver {
  OpPtr first, second;
};

// An op that was applied, with the derivatives of a scalar with respect to its outputs. An element
// of diff_outputs is undefined if the scalar does not depend on that output. `wanted` marks the
// inputs whose derivatives are needed.
struct AppliedOp {
  std::vector<Value> inputs, outputs, diff_outputs;
  std::vector<bool> wanted;
};

// Elements of a row-major tensor as another one: element [i_0, i_1, ...] is number offset + sum of
// i_k * strides[k].
struct StridedView {
  Shape shape;
  int64_t offset = 0;
  std::vector<int64_t> strides = {};  // one for each axis; may be 0 or negative

  auto operator<=>(const StridedView&) const = default;
};

// An op with its settings. Immutable, thread-safe.
class Op : public std::enable_shared_from_this<Op> {
 public:
  virtual ~Op() = default;
  // Whether eager calls keep the kernels of this op, because it is applied again (kept_op.h).
  bool is_kept() const { return kept_; }
  void keep() { kept_ = true; }
  // The op's name as error messages show it in brackets, for example "convolution2d".
  virtual std::string_view type() const = 0;
  // Returns shapes and types of the outputs, given those of the inputs. Layouts are
  // ignored. Throws InvalidArgument if the inputs do not fit; the message names the op, what it
  // expected and what it received.
  virtual std::vector<TensorSpec> infer(std::span<const TensorSpec> inputs) const = 0;
  // Whether input number `input` may have bf16 or f16 elements. The kernel then determines the type
  // of the outputs.
  virtual bool takes_narrow(size_t input) const {
    (void)input;
    return false;
  }
  // Returns the kernel for inputs that infer() accepts, in the given layouts.
  virtual kernels::Kernel compile(const kernels::Table& table,
                                  std::span<const TensorSpec> inputs) const = 0;
  // Adds ops that compute the derivatives of a scalar with respect to the inputs, and returns them,
  // one for each input; an undefined one means zero. By default the backward passes of the kernel
  // compute them (KernelGradient).
  virtual std::vector<Value> gradient(const AppliedOp& applied) const;
  // Adds the op as a composition of ops whose gradients are ops, and returns its outputs, or
  // nothing if it has none. It defines the derivatives of the kernel's backward passes. Outputs
  // through which no derivative flows back may be undefined.
  virtual std::vector<Value> decomposed(std::span<const Value> inputs) const {
    (void)inputs;
    return {};
  }
  // Adds the derivative of each output along a direction: from the change of each input (undefined:
  // 0) the change of each output (undefined: 0). Nothing if the op has no rule; decomposed() then
  // gives it. At least one change is defined.
  virtual std::vector<Value> tangent(std::span<const Value> inputs,
                                     std::span<const Value> changes) const {
    (void)inputs;
    (void)changes;
    return {};
  }
  // Whether all derivatives are 0, so that none are computed for what the inputs depend on.
  virtual bool has_zero_slope() const { return false; }
  // Whether the slope is constant, except at isolated points, so that second derivatives are 0.
  virtual bool has_constant_slope() const { return false; }
  // The op as an instruction on its inputs, with broadcasting, if it is one; its bits are those of
  // the op in f32. Plans combine neighboring instructions to expressions.
  virtual const kernels::Instruction* instruction() const { return nullptr; }
  // Whether the result is the first input repeated by NumPy's rules of broadcasting.
  virtual bool broadcasts() const { return false; }
  // For an op whose result consists of elements of its only input, of shape `x`: which elements;
  // otherwise nothing. Expressions read them from the input; other ops read a copy.
  virtual std::optional<StridedView> view(const Shape& x) const {
    (void)x;
    return std::nullopt;
  }
  // Whether results depend on the position in the training (RandomContext).
  virtual bool draws_random_numbers() const { return false; }
  // Returns one op that replaces this op followed by `next`, or nothing.
  virtual std::optional<FusedOps> fuse(const Op& next) const {
    (void)next;
    return std::nullopt;
  }
  // Returns this op without its last input and `next` with it, where that gives the same results in
  // fewer passes, or nothing.
  virtual std::optional<HandedOver> hand_over(const Op& next) const {
    (void)next;
    return std::nullopt;
  }
  // This op with one more input at the end, a bias of its first input's channels; null: it has
  // none.
  virtual OpPtr with_bias() const { return nullptr; }
  // Whether the back end has a kernel for this fused op. If not, the two ops are not fused.
  virtual bool offered_by(const kernels::Table& table) const {
    (void)table;
    return true;
  }

 private:
  bool kept_ = false;
};

// An op of floats: infer() accepts f32 alone, but for narrow inputs where takes_narrow() is true,
// and all outputs are f32 (a kernel of narrow inputs may give narrow ones).
class FloatOp : public Op {
 public:
  std::vector<TensorSpec> infer(std::span<const TensorSpec> inputs) const final;

 private:
  // Returns the shapes of the outputs. Throws as infer() does.
  virtual std::vector<Shape> infer_shapes(std::span<const Shape> inputs) const = 0;
};

// Op::infer() for inputs of f32: the shapes of the outputs.
std::vector<Shape> infer_of_floats(const Op& op, std::span<const Shape> inputs);

// Op::tangent() of an op whose output has the first input's shape, if each element depends on one
// element of that input, and other inputs have no derivative: the backward pass of the change.
std::vector<Value> elementwise_tangent(const Op& op, std::span<const Value> inputs,
                                       std::span<const Value> changes);

// Throws InvalidArgument "[type] takes ... inputs, received ...".
void check_count(const Op& op, size_t inputs, size_t least, size_t most);

// Throws InvalidArgument "[type] expected elements of f32, received ..." for any other type. bf16
// and f16 are accepted for inputs where takes_narrow() is true.
void check_floats(const Op& op, std::span<const TensorSpec> inputs);

// Throws Unsupported if an input is bf16 or f16 and the back end does not compute with that type.
void check_precision(const kernels::Table& table, std::span<const TensorSpec> inputs);

}  // namespace lockstep
