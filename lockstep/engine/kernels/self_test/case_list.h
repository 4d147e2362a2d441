// Makes the cases of ops from pairs of kernels.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/self_test/cases.h"
#include "lockstep/engine/kernels/self_test/reference.h"

namespace lockstep::kernels::selftest {

// The tolerances of the tests of ops: the errors of two orders of a sum, and rounding to a type.
inline constexpr double kSums = 2e-5, kNarrow = 1e-2, kNarrowWinograd = 2e-2;
// Mean errors that rounding to nearest does not have.
inline constexpr double kScaleOfBf16 = 4e-4, kScaleOfF16 = 6e-5;

inline Bounds bounds_of(const std::string& type) {
  if (type == "f32") return {.error = kSums};
  if (type == "tf32") return {.error = kNarrow};
  return {.error = kNarrow, .scale = type == "bf16" ? kScaleOfBf16 : kScaleOfF16};
}

inline TensorSpec plain_spec(const Shape& shape, DType dtype = DType::f32) {
  return {shape, dtype, nullptr};
}

// Spaces of images have both layouts.
inline bool has_layouts(const Shape& shape) { return shape.rank() > 2; }

// The specs of images of these shapes.
using Specs = std::function<TensorSpec(const Shape&)>;
// Makes a kernel of the device or the CPU.
using KernelMaker = std::function<Kernel(const Table&, const Specs&)>;

// Makes the kernel for the problem that `problem(spec)` gives.
template <class MakeProblem>
KernelMaker kernel_for(MakeProblem problem) {
  return [problem = std::move(problem)](const Table& table, const Specs& spec) {
    return compile(table, problem(spec));
  };
}

// A case of one kernel.
void add_made(std::vector<TestCase>& to, const std::string& kernel, const std::string& type,
              const std::string& what, bool in_layout, const KernelMaker& maker,
              const Bounds& bounds, const std::function<Values()>& given, bool large);

template <class MakeProblem>
void add_case(std::vector<TestCase>& to, const std::string& kernel, const std::string& type,
              const std::string& what, bool in_layout, MakeProblem problem, const Bounds& bounds,
              const std::function<Values()>& given = {}, bool large = false) {
  add_made(to, kernel, type, what, in_layout, kernel_for(std::move(problem)), bounds, given, large);
}

}  // namespace lockstep::kernels::selftest
