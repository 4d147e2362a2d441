#include "lockstep/train/custom_loop.h"

#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep {

ValueAndGradients value_and_gradient(const std::function<Tensor()>& loss,
                                     std::span<const Tensor> tensors) {
  const ArithmeticMode mode;
  Tape tape;
  tape.watch(tensors);
  const Tensor scalar = loss();
  if (!scalar.defined() || scalar.shape().elements() != 1 || scalar.dtype() != DType::f32) {
    throw InvalidArgument("[value_and_gradient] the loss must be one f32 number, received " +
                              (scalar.defined() ? scalar.spec().to_string() : "nothing"),
                          "ops::mean() reduces many to one");
  }
  ValueAndGradients result;
  result.value = static_cast<double>(scalar.to_vector()[0]);
  if (!std::isfinite(result.value)) {
    throw Error("[value_and_gradient] the loss is " + std::to_string(result.value),
                "a lower learning rate often helps");
  }
  result.gradients = tape.gradient(scalar, tensors);
  return result;
}

ValueAndGradients value_and_gradient(const std::function<Tensor()>& loss, const Network& network) {
  return value_and_gradient(loss, network.parameter_values());
}

}  // namespace lockstep
