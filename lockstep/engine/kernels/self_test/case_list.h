// Makes the cases of ops from pairs of kernels.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/interface/choice.h"
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

// A case of one kernel. `problem(spec)` makes the problem for the device or the CPU; spec(shape)
// gives the specs of its images.
template <auto entry, class Problem>
void add_case(std::vector<TestCase>& to, const std::string& kernel, const std::string& type,
              const std::string& what, bool in_layout,
              std::function<Problem(const std::function<TensorSpec(const Shape&)>&)> problem,
              Bounds bounds, const std::function<Values()>& given = {}, bool large = false) {
  to.push_back(
      {kernel, type, what + (in_layout ? ", layout of convolutions" : ""), large,
       [=](Bench& bench) {
         const DType dtype = numbers_of(type);
         const ThreadChoice choice({.deterministic = true, .tf32 = type == "tf32"});
         KernelPair pair;
         pair.cpu = (table_for({}).*entry)(problem([](const Shape& s) { return plain_spec(s); }));
         pair.device = (bench.table().*entry)(problem([&](const Shape& s) {
           return in_layout ? layout_of_convolutions(bench, s, dtype) : plain_spec(s, dtype);
         }));
         pair.numbers = dtype;
         if (given) pair.given = given();
         pair.bounds = bounds;
         return check_kernel(bench, pair);
       }});
}

}  // namespace lockstep::kernels::selftest
