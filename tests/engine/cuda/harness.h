// Runs kernels pass by pass on the host's memory and compares the CUDA back end's with the CPU's.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/engine/kernels/table.h"

namespace lockstep::kernels::cudatest {

using Kind = Operand::Kind;
using Bytes = std::vector<std::byte>;
using Key = std::pair<Kind, int>;
// What a kernel is given beside random normal numbers, row-major.
using Given = std::map<Key, Bytes>;

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Tolerances: the same bits, or what different orders of sums leave.
inline constexpr double kSame = 0, kClose = 3e-6, kNarrow = 1e-2;

std::vector<float> normal(size_t count, uint64_t key);
// Each number as bf16 or f16, and back.
std::vector<float> narrowed(std::vector<float> values, DType type);

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T = float>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

inline TensorSpec plain(const Shape& shape, DType dtype = DType::f32) {
  return {shape, dtype, nullptr};
}
inline const Table& cpu_table() { return table_for({}); }

// Runs all passes of a kernel; returns its outputs and gradients, row-major; narrow ones as
// floats. Memory that a pass must write holds NaNs before. Random numbers are what `numbers` can
// hold.
std::map<Key, Bytes> run(const Kernel& kernel, const Given& given, DType numbers = DType::f32);

// Largest difference, as a part of the largest element; NaNs must stand in the same places.
double difference(const std::vector<float>& a, const std::vector<float>& b);

// Runs the CUDA kernel in both orders of threads, which must not change a bit, and compares with
// the CPU's.
void compare(const Kernel& cpu, const Kernel& cuda, double tolerance, const Given& given = {});
// The same of a CUDA kernel for `numbers` beside the CPU's for floats, on numbers that these can
// hold.
void compare_narrow(const Kernel& cpu, const Kernel& cuda, DType numbers, double tolerance,
                    const Given& given = {});

}  // namespace lockstep::kernels::cudatest
