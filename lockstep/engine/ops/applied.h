// Ops applied to tensors, as applied() of graph/value.h applies them to values.
#pragma once

#include <vector>

#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/graph/op.h"

namespace lockstep {

inline Tensor applied(const OpPtr& op, const std::vector<Tensor>& inputs) {
  return apply_op(op, inputs).front();
}
inline Tensor applied(const OpPtr& op, std::initializer_list<Tensor> inputs) {
  return applied(op, std::vector<Tensor>(inputs));
}

inline std::vector<Tensor> all_outputs(const OpPtr& op, std::initializer_list<Tensor> inputs) {
  return apply_op(op, inputs);
}
inline std::vector<Value> all_outputs(const OpPtr& op, std::initializer_list<Value> inputs) {
  return apply_all(op, inputs);
}

}  // namespace lockstep
