// Runs kernels with one of the instruction sets of this processor.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::optest {

// During its lifetime Highway sees only this target.
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

// Kernels for AVX-512 use bf16 instructions that not every such processor has.
inline bool runs_bf16(int64_t target) { return target > HWY_AVX3 || kernels::table_for({}).bf16; }

}  // namespace lockstep::optest
