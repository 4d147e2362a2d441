// Reverse-mode automatic differentiation: a tape records ops while it is alive and then gives the
// gradients of a scalar with respect to tensors that it has watched or seen computed.
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
// inputs matter. Where outputs depend on each other (Tape::Outputs::linked), `wanted` and the
// results go on with the outputs: a defined result is the whole derivative with respect to that
// output, what comes by way of the other outputs included.
using BackwardFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& diff_outputs,
                                                           const std::vector<bool>& wanted)>;

// Records on the thread that made it, from construction to destruction; of several, each records
// what depends on the tensors that it watches. Keeps what backward passes need. Not thread-safe.
//
// What is constant for a tape: what was computed before watch(), on other threads, by predict() or
// with ForwardOptions::record = false; what the methods of Tensor make (clone(), reshaped(), to():
// ops::reshape() is recorded). Gradients are not recorded: see gradient().
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
  // shape; zeros where both are on the tape and the scalar does not depend on the tensor, as of
  // learnables that a loss does not use. May be called several times. Throws InvalidArgument where
  // `scalar` is not a single element, where it or a tensor is not on this tape (neither watched nor
  // computed from what is watched), and for tensors of whole numbers. Throws Unsupported where
  // `scalar` was computed from gradients of what is on this tape: derivatives of gradients are not
  // implemented. clone() of a gradient is a constant.
  std::vector<Tensor> gradient(const Tensor& scalar, std::span<const Tensor> with_respect_to);
  std::vector<Tensor> gradient(const Tensor& scalar, std::initializer_list<Tensor> tensors) {
    return gradient(scalar, std::span<const Tensor>(tensors.begin(), tensors.size()));
  }

  // For those who write ops: the innermost tape of this thread or null, whether this tape (any of
  // this thread's) must record an op with these inputs.
  static Tape* current();
  bool tracks(std::span<const Tensor> inputs) const;
  static bool any_tracks(std::span<const Tensor> inputs);
  // Whether a recorded op has this tensor among its inputs.
  bool reads(const Tensor& tensor) const;
  // Whether it was computed from gradients of what is on this tape.
  bool from_gradients(const Tensor& tensor) const;
  // Whether outputs of one op depend on each other.
  enum class Outputs : uint8_t { apart, linked };
  void record(std::vector<Tensor> inputs, std::vector<Tensor> outputs, BackwardFunction backward,
              Outputs kind = Outputs::apart);
  // Records in all tapes of this thread that track an input. To be called for every op, without a
  // function where any_tracks() said no: what is computed from gradients is noted.
  static void record_everywhere(const std::vector<Tensor>& inputs,
                                const std::vector<Tensor>& outputs, BackwardFunction backward,
                                Outputs kind = Outputs::apart);

 private:
  struct State;
  void check_asked(const Tensor& scalar, std::span<const Tensor> with_respect_to) const;
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
