// Values of ops, and where ops are added: to a graph, to a layer, or to tensors, at once.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/engine/tensor/spec.h"

namespace lockstep {

// An op with its settings (graph/op.h). Immutable, thread-safe.
class Op;
using OpPtr = std::shared_ptr<const Op>;

// Where ops are added. Values have numbers. Not thread-safe.
class ValueBuilder {
 public:
  virtual ~ValueBuilder() = default;
  // Shape and type of a value, row-major.
  virtual TensorSpec spec_of(int value) const = 0;
  // Applies an op to values and returns its outputs. Throws InvalidArgument if they do not fit.
  virtual std::vector<int> add(OpPtr op, std::vector<int> inputs) = 0;
};

// A value of a builder: an input, a parameter, a state or an op's output. A handle that is valid as
// long as the builder, in a custom layer until build() returns. Not thread-safe. By default
// undefined, which stands for an argument that is left out.
class Value {
 public:
  Value() = default;
  Value(ValueBuilder* builder, int number) : builder_(builder), number_(number) {}

  bool defined() const { return builder_ != nullptr; }
  // In a layer: for an input and values computed from it, the first dimension counts observations.
  // Both throw InvalidArgument if the value is undefined.
  Shape shape() const { return spec().shape; }
  DType dtype() const { return spec().dtype; }
  ValueBuilder* builder() const { return builder_; }
  int number() const { return number_; }

 private:
  TensorSpec spec() const;

  ValueBuilder* builder_ = nullptr;
  int number_ = -1;
};

// Applies an op to values of one builder and returns all outputs, or the first one. Throws
// InvalidArgument if a value is undefined or belongs to another builder.
std::vector<Value> apply_all(OpPtr op, std::span<const Value> inputs);
Value applied(OpPtr op, std::span<const Value> inputs);
inline std::vector<Value> apply_all(OpPtr op, std::initializer_list<Value> inputs) {
  return apply_all(std::move(op), std::span<const Value>(inputs.begin(), inputs.size()));
}
inline Value applied(OpPtr op, std::initializer_list<Value> inputs) {
  return applied(std::move(op), std::span<const Value>(inputs.begin(), inputs.size()));
}

}  // namespace lockstep
