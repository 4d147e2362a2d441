// Functions of tensors that are compiled, as layers are, for the shapes that they are called with.
//
//   const CompiledFunction likelihood([](const std::vector<Value>& x) {
//     return std::vector<Value>{ops::sum(ops::softplus(x[0]) - x[0] * x[1], {1})};
//   });
//   const Tensor each = likelihood({logits, images})[0];
//
// The results have the bits of the same ops on tensors, one by one, and so have first derivatives
// with respect to arguments that nothing else depends on; others are the same sums in another
// order. Neighboring ops of arithmetic read and write memory once. Tapes record one node.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/graph/value.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// Copies share what was compiled. Thread-safe, as far as its body is.
class CompiledFunction {
 public:
  // Applies ops to the arguments and returns one or several of their results, or arguments, f32. It
  // is called when the function is compiled, and sees shapes and types alone. What depends on
  // numbers is computed by ops (ops::where). Numbers that it captures are those of an earlier call:
  // pass what changes as an argument.
  using Body = std::function<std::vector<Value>(const std::vector<Value>& arguments)>;
  // The function is compiled for shapes, types, a device, and the arguments that tapes track. The
  // 64 combinations that were used last stay compiled, with memory for the runs that were under way
  // together. Throws InvalidArgument for an empty function.
  explicit CompiledFunction(Body body);

  // Returns copies of the results, on the device of the arguments. Tapes record them, with
  // derivatives of any order, as they record ops. A tape that watches an argument only after the
  // call is refused with Unsupported when it asks for that derivative. `step`: for random ops.
  // Throws InvalidArgument without arguments, if they are undefined, on several devices or do not
  // fit an op, without a step for random ops, and for results that were not computed from the
  // arguments or are not f32.
  std::vector<Tensor> operator()(const std::vector<Tensor>& arguments,
                                 const RandomContext& step) const;
  std::vector<Tensor> operator()(const std::vector<Tensor>& arguments) const;

 private:
  std::vector<Tensor> call(const std::vector<Tensor>& arguments, const RandomContext* step) const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
