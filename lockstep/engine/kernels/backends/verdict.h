// The verdict of a device's self-test: which kernels passed, by type of numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/digest.h"

namespace lockstep::kernels {

// Ordered by what matters more: of several cases the worst counts.
enum class TestState : uint8_t { passed, not_tested, failed };
std::string_view to_string(TestState state);

// One kernel with one type of numbers.
struct KernelVerdict {
  std::string kernel = {};  // an entry of Table: "convolution"
  std::string type = {};    // "f32", "tf32", "bf16", "f16"
  TestState state = TestState::passed;
  int cases = 0;          // that have run
  std::string seen = {};  // the first failure, or why it was not tested; "" if it passed
};

struct Verdict {
  std::vector<KernelVerdict> kernels;  // in the order of the test
  std::string reason;  // why the test did not begin or was not completed; "": it was
  double seconds = 0;  // of the test

  const KernelVerdict* find(std::string_view kernel, std::string_view type) const;
  bool passed(std::string_view kernel, std::string_view type = "f32") const;
  // failed if a kernel has failed, else not_tested if a kernel or the device was not tested.
  TestState state() const;
  // Of the names and states alone: equal digests admit the same kernels.
  Digest digest() const;
  // The digest with the names of what has not passed: "all passed, 1f..."; "without relu f32,
  // 1f...".
  std::string for_fingerprint() const;
  // "42 kernels passed", "40 of 42 kernels passed; relu f32 failed: ...", "not tested: ...".
  std::string summary() const;
};

}  // namespace lockstep::kernels
