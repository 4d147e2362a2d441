#include "lockstep/report/dashboard/gpu_use.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(GpuUse, IsReadFromTheManagementLibrary) {
  const auto gpus = GpuUse(LOCKSTEP_STAND_IN_NVML).json();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0]["name"], "Stand-in 0");
  EXPECT_EQ(gpus[0]["busy"], 0.75);
  EXPECT_EQ(gpus[0]["memory"], 0.25);
  EXPECT_EQ(gpus[0]["memory_bytes"], 80ull << 30);
  EXPECT_TRUE(gpus[1]["busy"].is_null());
  EXPECT_TRUE(gpus[1]["memory"].is_null());
}

TEST(GpuUse, IsEmptyWithoutTheLibrary) {
  EXPECT_EQ(GpuUse("libnothing-like-this.so.1").json().dump(), "[]");
}

}  // namespace
}  // namespace lockstep
