// The built-in self-test of a device: every kernel, with every type and layout, compared with the
// CPU's kernel; on two streams, repeated and recorded. What has passed is known to be right for
// these shapes on this device with these drivers and libraries.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/backends/verdict.h"

namespace lockstep::kernels {

// A case of the test.
struct SelfTestCase {
  std::string kernel, type;
  std::string what;    // the problem
  bool large = false;  // of the size of trainings

  std::string name() const { return kernel + " " + type + ", " + what; }
};

// The result of a case.
struct SelfTestResult {
  size_t number = 0;  // in self_test_cases()
  TestState state = TestState::passed;
  std::string seen = {};  // with `passed`: why the kernel has refused this problem, or ""
};

struct SelfTestOptions {
  double seconds = 50;              // after this time the remaining cases are not tested
  size_t first = 0;                 // number of the first case
  std::vector<std::string> skip{};  // kernels that are left out, as "convolution bf16"
  std::vector<std::string> only{};  // if not empty: only these kernels
  bool large = true;                // also problems of the sizes of trainings
  size_t every = 1;                 // n: only every n-th case
  bool until_failure = false;       // ends after the first failure
  // Called before a case begins, and with its result.
  std::function<void(size_t number)> begin = {};
  std::function<void(const SelfTestResult&)> end = {};
};

// The cases for a device with these kernels, in the order of the test.
std::vector<SelfTestCase> self_test_cases(const Table& table);
// Digest of the names of all cases: verdicts of other tests say nothing about this one.
std::string self_test_version();

// Runs the cases on a device. `table` has all its kernels, whatever has been verified before.
// Returns false if the device failed in a way that leaves it unusable for this process; the
// remaining cases have not run then. Results of the same test add up by verdict_of(). Throws Error
// if the device cannot even begin.
bool run_self_test(const Table& table, DeviceMemory& memory, const SelfTestOptions& options);

// The verdict from results of cases. A kernel whose small cases have not all run is not tested; nor
// is one that has refused all its problems.
Verdict verdict_of(const std::vector<SelfTestCase>& cases,
                   const std::vector<SelfTestResult>& results);
// Whether a kernel has refused all its problems. Another test would not change this.
bool refuses_all(const KernelVerdict& kernel);

// The CPU as a device: its memory, with streams that do all work at once. For tests.
std::shared_ptr<DeviceMemory> host_as_device();

}  // namespace lockstep::kernels
