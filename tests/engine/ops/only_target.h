// Kernels with one of the instruction sets that this processor has.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace lockstep::optest {

// While alive, Highway sees only this target.
class Target {
 public:
  explicit Target(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  ~Target() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
};

}  // namespace lockstep::optest
