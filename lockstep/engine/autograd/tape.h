// Reverse-mode automatic differentiation. A tape records ops while it is alive. It then returns the
// gradients of a scalar with respect to tensors that it watched or whose computation it recorded.
//
//   Tape tape;
//   tape.watch(x);
//   Tensor loss = ops::mean(ops::relu(x));
//   std::vector<Tensor> gradients = tape.gradient(loss, {x});
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/graph/value.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

struct GradientOptions {
  // Record the computation of the gradients on this tape, so that they can be differentiated again.
  bool create_graph = false;
};

// Computes the gradients with respect to a node's inputs from those with respect to its outputs. An
// element of `diff_outputs` is undefined if nothing depends on that output. An undefined result
// means zero. `wanted` marks the inputs whose gradients are needed. For Tape::Outputs::linked,
// `wanted` and the results have further elements, one for each output. A defined result there is
// the total derivative with respect to that output, including the contributions through the other
// outputs.
using BackwardFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& diff_outputs,
                                                           const std::vector<bool>& wanted)>;

// A kernel that has computed the outputs of an op, with what it keeps for its backward passes.
struct AppliedKernel;

// Records ops on the thread that created it, from construction to destruction. If a thread has
// several tapes, each one records the ops that depend on the tensors it watches. A tape keeps the
// tensors that backward passes need. Not thread-safe.
//
// A tape treats these values as constants: values computed before watch(), on other threads, by
// predict() or with ForwardOptions::record = false; results of member functions of Tensor such as
// clone() and to(), except reshaped(), which is recorded.
//
// Derivatives of gradients: either one tape with GradientOptions::create_graph, or a tape around
// another one, which records the inner tape's gradients like all other computations.
//
//   std::vector<Tensor> dx = tape.gradient(loss, {x}, {.create_graph = true});
//   std::vector<Tensor> of_norm = tape.gradient(ops::sum(ops::square(dx[0])), {x});
class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Records ops that use this tensor from now on.
  void watch(const Tensor& tensor);
  void watch(std::span<const Tensor> tensors);

  // Returns the derivatives of `scalar` (one element, f32) with respect to each tensor, row-major,
  // in the tensor's shape. A result is zero if both are on the tape and the scalar does not depend
  // on the tensor, for example for parameters that a loss does not use. May be called several
  // times. Throws InvalidArgument if `scalar` does not have exactly one element, if `scalar` or a
  // tensor is not on this tape (neither watched nor computed from a watched tensor), or if a tensor
  // has an integer type. Throws Unsupported if `scalar` was computed from gradients that this tape
  // has given without create_graph; a clone() of a gradient is a constant.
  std::vector<Tensor> gradient(const Tensor& scalar, std::span<const Tensor> with_respect_to,
                               const GradientOptions& options = {});
  std::vector<Tensor> gradient(const Tensor& scalar, std::initializer_list<Tensor> tensors,
                               const GradientOptions& options = {}) {
    return gradient(scalar, std::span<const Tensor>(tensors.begin(), tensors.size()), options);
  }

  // The functions below are for op implementations. current() returns the innermost tape of this
  // thread or null. tracks() tells whether this tape must record an op with these inputs,
  // any_tracks() whether any tape of this thread must. any_records(): whether a tape of this thread
  // records at all; one that computes gradients without create_graph does not.
  static Tape* current();
  static bool any_records();
  bool tracks(std::span<const Tensor> inputs) const;
  static bool any_tracks(std::span<const Tensor> inputs);
  // Whether a recorded op has this tensor among its inputs.
  bool reads(const Tensor& tensor) const;
  // Whether the tensor was computed from gradients that this tape has given without recording them.
  bool from_gradients(const Tensor& tensor) const;
  // Whether the outputs of one op depend on each other (linked) or not (apart).
  enum class Outputs : uint8_t { apart, linked };
  void record(std::vector<Tensor> inputs, std::vector<Tensor> outputs, BackwardFunction backward,
              Outputs kind = Outputs::apart);
  // Records the op in all tapes of this thread that track an input. Must be called for every op,
  // because it also marks values that are computed from gradients. `backward` may be null if
  // any_tracks() returned false.
  static void record_everywhere(const std::vector<Tensor>& inputs,
                                const std::vector<Tensor>& outputs, BackwardFunction backward,
                                Outputs kind = Outputs::apart);
  // The same for an op, whose gradient() is its backward function. `kernel`: what has computed it;
  // null for a gradient of an op.
  static void record_everywhere(const std::vector<Tensor>& inputs,
                                const std::vector<Tensor>& outputs, const OpPtr& op,
                                const std::shared_ptr<const AppliedKernel>& kernel,
                                const RandomContext& step);

 private:
  struct Node;
  struct State;
  class Nodes;
  using NodePointer = std::shared_ptr<const Node>;  // shared by all tapes that record it
  // `make_node` may be null, for what has no derivative.
  static void record_node(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                          const std::function<NodePointer()>& make_node);
  void check_asked(const Tensor& scalar, std::span<const Tensor> with_respect_to) const;
  std::unique_ptr<State> state_;
  Tape* outer_;
};

// Runs an op immediately on the device that holds the tensors. Records it in each tape that tracks
// an input. Outputs keep the layout that the kernel chose. Throws InvalidArgument if the tensors
// are on several devices.
std::vector<Tensor> apply_op(const OpPtr& op, const std::vector<Tensor>& inputs,
                             const RandomContext& step = {});

// Returns the tensor in another layout, or the tensor itself if it already has that layout. `spec`
// may have another shape with the same number of elements.
Tensor convert(const Tensor& tensor, const TensorSpec& spec);

}  // namespace lockstep
