// Element types and device kinds.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class DType : uint8_t { f32, i32, i64, u8, bf16, f16 };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
    case DType::bf16:
    case DType::f16:
      return 2;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
  }
  return "?";
}

// Two-byte floating-point types.
constexpr bool is_narrow(DType t) { return t == DType::bf16 || t == DType::f16; }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};

// The device that holds memory and runs kernels. `index` counts devices of one kind. The CPU has
// only index 0.
struct Device {
  enum class Kind : uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;
  bool is_cpu() const { return kind == Kind::cpu; }
  friend auto operator<=>(const Device&, const Device&) = default;
};

// "cpu" or "cuda:0".
std::string to_string(Device device);
// Parses "cpu", "cuda" (the first GPU) or "cuda:N". Throws InvalidArgument for other text. Does not
// check whether the device exists.
Device parse_device(std::string_view text);

}  // namespace lockstep
