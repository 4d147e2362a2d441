// The cases of the self-test: every kernel, with every type and layout that it supports, on shapes
// for which the libraries of GPUs choose different algorithms.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/kernels/self_test/bench.h"

namespace lockstep::kernels::selftest {

struct TestCase {
  std::string kernel;  // an entry of Table
  std::string type;    // "f32", "tf32", "bf16", "f16"
  std::string what;    // the problem: "2x3x5x7, kernel 3x3"
  bool large = false;  // of the sizes of trainings
  // Returns what is wrong, or "". Throws Unsupported if the device refuses the problem.
  std::function<std::string(Bench&)> run;

  std::string name() const { return kernel + " " + type + ", " + what; }
};

// All cases for a device with this table, by kernel in its order. The cases do not depend on the
// device, except for the types that it computes with.
std::vector<TestCase> all_cases(const Table& table);

// The layout that the device's convolutions give to images of `shape`; row-major if they refuse
// this shape.
TensorSpec layout_of_convolutions(Bench& bench, const Shape& shape, DType type);

// Parts of all_cases().
std::vector<TestCase> window_cases(const Table& table);
std::vector<TestCase> op_cases(const Table& table);
std::vector<TestCase> index_cases();
std::vector<TestCase> recurrent_cases();
std::vector<TestCase> function_cases(const Table& table);

// The types of numbers for a kernel: f32, and others that the table offers.
std::vector<std::string> types_of(const Table& table, std::string_view kernel);
// f32 for "f32" and "tf32".
DType numbers_of(std::string_view type);

}  // namespace lockstep::kernels::selftest
