// Runs kernels pass by pass on host memory and compares the CUDA back end's with the CPU's.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels::cudatest {

using Kind = Operand::Kind;
using Bytes = std::vector<std::byte>;
using Key = std::pair<Kind, int>;
// Inputs of a kernel other than random normal numbers, row-major.
using Given = std::map<Key, Bytes>;

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Tolerances: equal bits, or the effect of different orders of sums.
inline constexpr double kSame = 0, kClose = 3e-6, kNarrow = 1e-2;

std::vector<float> normal(size_t count, uint64_t key);
// Rounds each number to bf16 or f16 and back.
std::vector<float> narrowed(std::vector<float> values, DType type);

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T = float>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

inline TensorSpec plain(const Shape& shape, DType dtype = DType::f32) {
  return {shape, dtype, nullptr};
}
// Input 0: random numbers, of which the first are zeros, NaN and infinities.
Given with_special_values(const Shape& shape);
inline const Table& cpu_table() { return table_for({}); }

// Runs all passes of a kernel. Returns its outputs and gradients, row-major; narrow ones as floats.
// Memory that a pass must write initially holds NaNs. Random inputs are representable in `numbers`.
std::map<Key, Bytes> run(const Kernel& kernel, const Given& given, DType numbers = DType::f32);

// The largest difference relative to the largest element. NaNs must be in the same places.
double difference(const std::vector<float>& a, const std::vector<float>& b);

// Runs the CUDA kernel in both orders of threads, which must not change a bit, and compares it with
// the CPU's kernel.
void compare(const Kernel& cpu, const Kernel& cuda, double tolerance, const Given& given = {});
// Same, for a CUDA kernel for `numbers` and the CPU's kernel for floats, on numbers that `numbers`
// can represent.
void compare_narrow(const Kernel& cpu, const Kernel& cuda, DType numbers, double tolerance,
                    const Given& given = {});

}  // namespace lockstep::kernels::cudatest
