#include "lockstep/base/utc_time.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(UtcTime, IsWrittenInOneForm) {
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_text(1795551794), "2026-11-24T20:23:14Z");
  const std::string now = utc_now();
  EXPECT_EQ(now.size(), 20u);
  EXPECT_GE(now, utc_text(std::time(nullptr) - 5));
  EXPECT_LE(now, utc_text(std::time(nullptr) + 5));
}

}  // namespace
}  // namespace lockstep
