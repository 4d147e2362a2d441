// Values for the self-test's cases, the CPU's results for them, and the comparison of a device's
// kernel with these.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/self_test/bench.h"

namespace lockstep::kernels::selftest {

// An operand of a kernel, by kind and number.
using Key = std::pair<Operand::Kind, int>;
// Values of operands, row-major. Numbers are floats, whatever type the device's kernel takes.
using Values = std::map<Key, HostBytes>;

// Normal random numbers, a function of `key`.
std::vector<float> normal_numbers(size_t count, uint64_t key);
// Rounds numbers to bf16 or f16 and back; other types keep them.
std::vector<float> rounded_to(std::vector<float> values, DType type);

template <class T>
HostBytes bytes_of(const std::vector<T>& values) {
  HostBytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Floats in the memory of bf16 or f16, and back. Other types keep the bytes.
HostBytes narrowed(const HostBytes& floats, DType type);
HostBytes widened(const HostBytes& bytes, DType type);

// How far a result may be from the CPU's.
struct Bounds {
  // Of the norm of the difference, relative to the norm of the CPU's result. 0: equal values.
  double error = 0;
  // Of the mean relative difference in size, which rounding towards zero changes. 0: any.
  double scale = 0;
};

// What is wrong with a result; "" if nothing is. NaNs and infinities must be at the same indices.
std::string outside(std::span<const float> result, std::span<const float> expected,
                    const Bounds& bounds);

// A kernel of the device and the CPU's kernel for the same problem, row-major and in f32.
struct KernelPair {
  Kernel device, cpu;
  // Numbers of inputs that the device's kernel takes in other types are rounded to this type.
  DType numbers = DType::f32;
  Values given = {};  // values of operands; others are random
  Bounds bounds = {};
};

// Checks every pass of the device's kernel with the CPU's operands. Returns what is wrong, or "".
std::string check_kernel(Bench& bench, const KernelPair& pair);

}  // namespace lockstep::kernels::selftest
