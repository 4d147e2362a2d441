#include "lockstep/engine/graph/value.h"

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"

namespace lockstep {

TensorSpec Value::spec() const {
  if (!defined()) throw InvalidArgument("[value] a value is undefined");
  return builder_->spec_of(number_);
}

std::vector<Value> apply_all(OpPtr op, std::span<const Value> inputs) {
  if (!op) throw InvalidArgument("[op] the op is null");
  const std::string where = "[" + std::string(op->type()) + "] ";
  if (inputs.empty()) throw InvalidArgument(where + "takes 1 or more inputs, received 0");
  ValueBuilder* const builder = inputs.front().builder();
  std::vector<int> numbers;
  for (const Value& value : inputs) {
    if (!value.defined()) throw InvalidArgument(where + "an input is an undefined value");
    if (value.builder() != builder) {
      throw InvalidArgument(where + "inputs are values of different graphs or layers");
    }
    numbers.push_back(value.number());
  }
  std::vector<Value> outputs;
  for (const int number : builder->add(std::move(op), std::move(numbers))) {
    outputs.emplace_back(builder, number);
  }
  return outputs;
}

Value applied(OpPtr op, std::span<const Value> inputs) {
  return apply_all(std::move(op), inputs).front();
}

}  // namespace lockstep
