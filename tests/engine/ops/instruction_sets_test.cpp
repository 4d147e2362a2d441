// What the numerics fingerprint says about instruction sets is what the kernels use.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <dnnl.hpp>
#include <string>

#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/interface/library_versions.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep {
namespace {

std::string value_of(const std::string& name) {
  for (const auto& [entry, value] : kernels::library_versions()) {
    if (entry == name) return value;
  }
  return "missing";
}

TEST(InstructionSets, TheTargetOfOwnKernelsIsNamed) {
  const std::string best = value_of("target of own kernels");
  EXPECT_EQ(best, hwy::TargetName(hwy::SupportedTargets() & HWY_TARGETS &
                                  -(hwy::SupportedTargets() & HWY_TARGETS)));
  int others = 0;
  for (int64_t all = hwy::SupportedTargets() & HWY_TARGETS; all != 0; all &= all - 1) {
    const int64_t target = all & -all;
    const optest::Target only(target);
    EXPECT_EQ(value_of("target of own kernels"), hwy::TargetName(target));
    others += value_of("target of own kernels") != best;
  }
  EXPECT_GT(others, 0);
  EXPECT_EQ(value_of("target of own kernels"), best);
}

// Asked before, too, so that the limit of oneDNN's instruction sets is in place.
TEST(InstructionSets, OnednnUsesFmaOnlyIfTheProcessorReportsIt) {
  const bool fma = __builtin_cpu_supports("fma") != 0;
  EXPECT_EQ(kernels::cpu::uses(dnnl_cpu_isa_avx2), fma && __builtin_cpu_supports("avx2"));
  kernels::cpu::engine();
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  EXPECT_TRUE(fma || (isa & ~static_cast<unsigned>(dnnl_cpu_isa_avx)) == 0);
}

}  // namespace
}  // namespace lockstep
