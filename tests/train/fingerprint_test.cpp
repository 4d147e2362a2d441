#include "lockstep/train/state/fingerprint.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/loading.h"

namespace lockstep {
namespace {

std::string value_of(const std::string& name) {
  for (const auto& entry : numerics_fingerprint()) {
    if (entry.name == name) return entry.value;
  }
  return "";
}

TEST(Fingerprint, NamesEverythingThatBitsDependOn) {
  for (const char* name : {"processor vendor", "processor", "caches", "oneDNN", "instruction set",
                           "target of own kernels", "clones of own loops", "C library",
                           "functions of the C library", "image libraries", "build"}) {
    EXPECT_NE(value_of(name), "") << name;
  }
  EXPECT_EQ(value_of("processor").rfind("family ", 0), 0u);
  EXPECT_EQ(value_of("build").size(), 40u) << "a build id of SHA-1: " << value_of("build");
  EXPECT_EQ(&numerics_fingerprint(), &numerics_fingerprint());
}

TEST(Fingerprint, DifferencesAreNamedBothWays) {
  const std::vector<FingerprintEntry> a{{"x", "1"}, {"y", "2"}}, b{{"x", "1"}, {"y", "3"}};
  EXPECT_EQ(fingerprint_difference(a, a), "");
  EXPECT_EQ(fingerprint_difference(a, b), "y: 2 here, 3 there");
  EXPECT_EQ(fingerprint_difference(a, {{"x", "7"}}),
            "x: 1 here, 7 there; y: 2 here, unknown there");
  EXPECT_EQ(fingerprint_difference({{"x", "1"}}, a), "y: unknown here, 2 there");
  EXPECT_EQ(fingerprint_difference(a, {{"y", "2"}, {"x", "1"}}), "") << "order does not matter";
}

std::string self_test_in(const std::vector<FingerprintEntry>& entries) {
  for (const auto& entry : entries) {
    if (entry.name == "GPU self-test") return entry.value;
  }
  return "";
}

// Kernels that have not passed give way to others, so another verdict means other bits.
TEST(Fingerprint, AGpuAddsTheVerdictOfItsSelfTest) {
  const Device gpu{Device::Kind::cuda, 0};
  kernels::set_verdict_source([](const kernels::DeviceInfo&) {
    kernels::Verdict verdict;
    verdict.kernels = {{.kernel = "relu", .type = "f32"}};
    return verdict;
  });
  const auto passed = numerics_fingerprint(gpu);
  EXPECT_EQ(self_test_in(passed).find("all passed, "), 0u) << self_test_in(passed);
  kernels::set_verdict_source([](const kernels::DeviceInfo&) {
    kernels::Verdict verdict;
    verdict.kernels = {
        {.kernel = "relu", .type = "f32", .state = kernels::TestState::failed, .seen = "x"}};
    return verdict;
  });
  const auto failed = numerics_fingerprint(gpu);
  EXPECT_EQ(self_test_in(failed).find("without relu f32, "), 0u) << self_test_in(failed);
  EXPECT_EQ(fingerprint_difference(passed, failed),
            "GPU self-test: " + self_test_in(passed) + " here, " + self_test_in(failed) + " there");
  EXPECT_EQ(self_test_in(numerics_fingerprint(Device{})), "");
  kernels::set_verdict_source(nullptr);
}

TEST(Fingerprint, EnvironmentThatChangesArithmeticIsRefusedByName) {
  refuse_stray_environment();
  for (const char* name :
       {"ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA",
        "DNNL_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "DNNL_CPU_ISA_HINTS", "NVIDIA_TF32_OVERRIDE"}) {
    setenv(name, "1", 1);
    try {
      refuse_stray_environment();
      ADD_FAILURE() << name << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    unsetenv(name);
  }
  setenv("LOCKSTEP_MAX_CPU_ISA", "AVX2", 1);
  refuse_stray_environment();
  setenv("LOCKSTEP_MAX_CPU_ISA", "avx", 1);
  EXPECT_THROW(refuse_stray_environment(), InvalidArgument);
  unsetenv("LOCKSTEP_MAX_CPU_ISA");
  refuse_stray_environment();
}

}  // namespace
}  // namespace lockstep
