// Calls with the C++ types of elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/dtype.h"

namespace lockstep::kernels {

// Calls call(T()) for a type of whole elements: float, int32_t, int64_t or uint8_t. Throws
// InvalidArgument, naming the op, for bf16 and f16.
template <class Call>
auto with_type(std::string_view op, DType type, const Call& call) {
  switch (type) {
    case DType::f32:
      return call(float());
    case DType::i32:
      return call(int32_t());
    case DType::i64:
      return call(int64_t());
    case DType::u8:
      return call(uint8_t());
    case DType::bf16:
    case DType::f16:
      break;
  }
  throw InvalidArgument("[" + std::string(op) + "] expected elements of f32, i32, i64 or u8, " +
                        "received " + std::string(name_of(type)));
}

}  // namespace lockstep::kernels
