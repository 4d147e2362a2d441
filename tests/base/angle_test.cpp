// Sine, cosine and tangent against the C library's, and exactly where the values are known.
#include "lockstep/base/numeric/angle.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

constexpr double pi = 3.14159265358979323846;

TEST(Angle, MatchesTheCLibrary) {
  for (int i = -7200; i <= 7200; ++i) {
    const double degrees = i / 13.0;
    const auto [s, c] = sine_and_cosine_of_degrees(degrees);
    EXPECT_NEAR(s, std::sin(degrees * pi / 180), 2e-15) << degrees;
    EXPECT_NEAR(c, std::cos(degrees * pi / 180), 2e-15) << degrees;
    if (std::abs(degrees) < 89.5) {
      const double tangent = std::tan(degrees * pi / 180);
      EXPECT_NEAR(tangent_of_degrees(degrees), tangent, 1e-13 * (1 + std::abs(tangent * tangent)));
    }
  }
}

TEST(Angle, QuartersAreExact) {
  for (int turn = -3; turn <= 3; ++turn) {
    const double at = 360.0 * turn;
    EXPECT_EQ(sine_and_cosine_of_degrees(at).sine, 0);
    EXPECT_EQ(sine_and_cosine_of_degrees(at).cosine, 1);
    EXPECT_EQ(sine_and_cosine_of_degrees(at + 90).sine, 1);
    EXPECT_EQ(sine_and_cosine_of_degrees(at + 90).cosine, 0);
    EXPECT_EQ(sine_and_cosine_of_degrees(at + 180).sine, 0);
    EXPECT_EQ(sine_and_cosine_of_degrees(at + 180).cosine, -1);
    EXPECT_EQ(sine_and_cosine_of_degrees(at + 270).sine, -1);
    EXPECT_EQ(sine_and_cosine_of_degrees(at + 270).cosine, 0);
  }
}

}  // namespace
}  // namespace lockstep
