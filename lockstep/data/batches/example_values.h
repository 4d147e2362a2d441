// The values of examples that a cache keeps.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/numeric/shape.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// The value in an example that has the cache's number of inputs; null if it is not a Value.
template <class Value>
const Value* value_in(const Example& example, const CachedValue& value) {
  if (value.from >= example.inputs.size()) return std::get_if<Value>(&example.target);
  return std::get_if<Value>(&example.inputs[value.from]);
}

// An array of floats or integers.
struct ArrayParts {
  const Shape* shape = nullptr;  // null: there is no such array
  std::span<const uint8_t> bytes = {};

  int64_t elements() const { return static_cast<int64_t>(bytes.size() / sizeof(float)); }
};

// The array of the value's type in an example.
inline ArrayParts array_in(const Example& example, const CachedValue& value) {
  const auto parts = [](const auto* array) -> ArrayParts {
    if (array == nullptr) return {};
    const auto* const first = reinterpret_cast<const uint8_t*>(array->values.data());
    return {&array->shape, {first, array->values.size() * sizeof(float)}};
  };
  return value.type == DType::i32 ? parts(value_in<IntegerArray>(example, value))
                                  : parts(value_in<Array>(example, value));
}

}  // namespace lockstep
