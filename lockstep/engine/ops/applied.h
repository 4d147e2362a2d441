// Ops applied to tensors, as applied() of graph/value.h applies them to values.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
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

// Throws the error again. The function's name replaces that of the op; a location before it stays.
[[noreturn]] void refuse_as(std::string_view function, const InvalidArgument& error);
[[noreturn]] void refuse_as(std::string_view function, const Unsupported& error);

// Calls `made`, the body of a function of ops.h that consists of other ones: what these refuse gets
// the name of the function that was called.
template <class Made>
auto named(std::string_view function, const Made& made) -> decltype(made()) {
  try {
    return made();
  } catch (const InvalidArgument& error) {
    refuse_as(function, error);
  } catch (const Unsupported& error) {
    refuse_as(function, error);
  }
}

// Instantiates a function of ops.h for tensors and for values. The number is that of its operands,
// which come first; the types of its settings follow.
#define LOCKSTEP_INSTANTIATE_1(name, ...)                         \
  template Tensor name(const Tensor& __VA_OPT__(, ) __VA_ARGS__); \
  template Value name(const Value& __VA_OPT__(, ) __VA_ARGS__);
#define LOCKSTEP_INSTANTIATE_2(name, ...)                                        \
  template Tensor name(const Tensor&, const Tensor& __VA_OPT__(, ) __VA_ARGS__); \
  template Value name(const Value&, const Value& __VA_OPT__(, ) __VA_ARGS__);
#define LOCKSTEP_INSTANTIATE_3(name, ...)                                                       \
  template Tensor name(const Tensor&, const Tensor&, const Tensor& __VA_OPT__(, ) __VA_ARGS__); \
  template Value name(const Value&, const Value&, const Value& __VA_OPT__(, ) __VA_ARGS__);

}  // namespace lockstep
