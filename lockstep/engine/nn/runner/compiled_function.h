// Functions of tensors that are compiled, as layers are, for the shapes that they are called with.
//
//   const CompiledFunction likelihood([](const std::vector<Value>& x) {
//     return std::vector<Value>{ops::sum(ops::softplus(x[0]) - x[0] * x[1], {1})};
//   });
//   const Tensor each = likelihood({logits, images})[0];
//
// The results have the bits of the same ops on tensors, but neighboring elementwise ops read and
// write memory once, and nothing is recorded op by op. So have derivatives, unless an argument also
// has another way to what is differentiated: the parts of the function are added to each other
// first.
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
  // Applies ops to the arguments and returns one or several results, f32. It is called at the first
  // call for shapes, types and a device, and sees those, never numbers: what depends on numbers is
  // computed by ops (ops::where), or is an argument. Values that it captures are constants.
  using Body = std::function<std::vector<Value>(const std::vector<Value>& arguments)>;
  // The 64 last combinations of shapes and types stay compiled. Throws InvalidArgument for an empty
  // function.
  explicit CompiledFunction(Body body);

  // Computes the results on the device of the arguments. Tapes record them, with derivatives of any
  // order with respect to the arguments that are f32. `step`: for random ops. Throws
  // InvalidArgument if arguments are undefined or on several devices, if they do not fit an op, or
  // for a body that returns something else than results of ops on its arguments.
  std::vector<Tensor> operator()(const std::vector<Tensor>& arguments,
                                 const RandomContext& step = {}) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
