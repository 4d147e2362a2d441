#include "lockstep/base/numeric/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST(Float16, RoundsToTheNearestTiesToEven) {
  const auto rounded = [](float x) { return to_float16(x).bits; };
  EXPECT_EQ(rounded(1.0f), 0x3c00);
  EXPECT_EQ(rounded(1.0f + 0x1p-11f), 0x3c00);  // a tie: down to even
  EXPECT_EQ(rounded(1.0f + 0x1.8p-11f), 0x3c01);
  EXPECT_EQ(rounded(1.0f + 0x1.8p-10f), 0x3c02);  // a tie: up to even
  EXPECT_EQ(rounded(-1.0f - 0x1.8p-10f), 0xbc02);
  EXPECT_EQ(rounded(65504.0f), 0x7bff);
  EXPECT_EQ(rounded(65519.0f), 0x7bff);
  EXPECT_EQ(rounded(65520.0f), 0x7c00);  // a tie: infinity
  EXPECT_EQ(rounded(-1e30f), 0xfc00);
  // Subnormal numbers.
  EXPECT_EQ(rounded(0x1p-14f), 0x0400);
  EXPECT_EQ(rounded(0x1.ff8p-15f), 0x03ff);
  EXPECT_EQ(rounded(0x1.ffcp-15f), 0x0400);  // a tie
  EXPECT_EQ(rounded(0x1p-24f), 0x0001);
  EXPECT_EQ(rounded(0x1p-25f), 0x0000);  // a tie: down to even
  EXPECT_EQ(rounded(-0x1.8p-25f), 0x8001);
  EXPECT_EQ(rounded(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(rounded(-0.0f), 0x8000);
}

TEST(Float16, KeepsWhatIsNotAFiniteNumber) {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_float16(infinite)), infinite);
  EXPECT_EQ(to_float(to_float16(-infinite)), -infinite);
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(to_float(to_float16(std::bit_cast<float>(bits))))) << bits;
  }
}

TEST(Float16, EveryOneComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) continue;
    ASSERT_EQ(to_float16(to_float(x)).bits, x.bits);
  }
}

#ifdef __FLT16_MANT_DIG__
// Compares with the compiler's own type.
TEST(Float16, IsTheCompilersHalf) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 0x1003) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(x)) continue;
    ASSERT_EQ(to_float16(x).bits, std::bit_cast<uint16_t>(static_cast<_Float16>(x))) << x;
  }
}
#endif

}  // namespace
}  // namespace lockstep
