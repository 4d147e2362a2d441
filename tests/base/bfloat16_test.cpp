#include "lockstep/base/numeric/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST(BFloat16, RoundsToTheNearestTiesToEven) {
  const auto rounded = [](uint32_t bits) { return to_bfloat16(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(rounded(0x3f800000), 0x3f80);
  EXPECT_EQ(rounded(0x3f807fff), 0x3f80);
  EXPECT_EQ(rounded(0x3f808000), 0x3f80);  // a tie: down to even
  EXPECT_EQ(rounded(0x3f808001), 0x3f81);
  EXPECT_EQ(rounded(0x3f818000), 0x3f82);  // a tie: up to even
  EXPECT_EQ(rounded(0xbf818000), 0xbf82);
  EXPECT_EQ(rounded(0x7f7fffff), 0x7f80);  // the largest float: infinity
  EXPECT_EQ(rounded(0x00000001), 0x0000);
  EXPECT_EQ(rounded(0x80000000), 0x8000);
}

TEST(BFloat16, KeepsWhatIsNotAFiniteNumber) {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bfloat16(infinite)), infinite);
  EXPECT_EQ(to_float(to_bfloat16(-infinite)), -infinite);
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(bits))))) << bits;
  }
}

TEST(BFloat16, EveryOneComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) continue;
    ASSERT_EQ(to_bfloat16(to_float(x)).bits, x.bits);
  }
}

}  // namespace
}  // namespace lockstep
