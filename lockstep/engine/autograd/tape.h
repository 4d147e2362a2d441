// Reverse-mode automatic differentiation: a tape records ops while it is alive and then gives the
// gradients of any scalar with respect to any tensors.
//
//   Tape tape;
//   tape.watch(x);
//   Tensor loss = ops::mean(ops::relu(x));
//   std::vector<Tensor> gradients = tape.gradient(loss, {x});
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/engine/autograd/op.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// Gradients with respect to the inputs of a node, given those with respect to its outputs
// (undefined where nothing depends on an output). Undefined results mean zero. `wanted` says which
// inputs matter.
using BackwardFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& diff_outputs,
                                                           const std::vector<bool>& wanted)>;

// Records on the thread that made it, from construction to destruction; the innermost tape of a
// thread records. Keeps what backward passes need. Not thread-safe.
class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Ops that use this tensor are recorded from now on.
  void watch(const Tensor& tensor);
  void watch(std::span<const Tensor> tensors);

  // Derivatives of `scalar` (one element, f32) with respect to each tensor, row-major, in its
  // shape; zeros where the scalar does not depend on it. May be called several times. Throws
  // InvalidArgument when `scalar` is not a single element.
  std::vector<Tensor> gradient(const Tensor& scalar, std::span<const Tensor> with_respect_to);
  std::vector<Tensor> gradient(const Tensor& scalar, std::initializer_list<Tensor> tensors) {
    return gradient(scalar, std::span<const Tensor>(tensors.begin(), tensors.size()));
  }

  // For those who write ops: the innermost tape of this thread or null, whether an op with these
  // inputs must be recorded, and recording it.
  static Tape* current();
  bool tracks(std::span<const Tensor> inputs) const;
  // Whether a recorded op has this tensor among its inputs.
  bool reads(const Tensor& tensor) const;
  void record(std::vector<Tensor> inputs, std::vector<Tensor> outputs, BackwardFunction backward);

 private:
  struct State;
  std::unique_ptr<State> state_;
  Tape* outer_;
};

// Runs an op on tensors, at once, on the device where they lie, and records it where a tape wants
// it. Outputs keep the layout that the kernel chose. Throws InvalidArgument for tensors on several
// devices.
std::vector<Tensor> apply_op(const OpPtr& op, const std::vector<Tensor>& inputs,
                             const kernels::StepInfo& step = {});

// The tensor in another layout; itself where nothing has to be done. Row-major memory may be seen
// with another shape of equally many elements.
Tensor convert(const Tensor& tensor, const TensorSpec& spec);

}  // namespace lockstep
