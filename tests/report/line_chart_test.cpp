#include <gtest/gtest.h>

#include <limits>

#include "lockstep/report/charts.h"

namespace lockstep {
namespace {

TEST(LineChart, JoinsPoints) {
  const std::vector<LineSeries> up{{"", {{0, 0}, {7, 7}}}};
  EXPECT_EQ(line_chart_text(up, {.title = "up", .columns = 20, .rows = 3}),
            "up                  \n"
            "      7 ⠀⠀⠀⠀⠀⠀⠀⠀⣀⠤⠒⠉\n"
            "        ⠀⠀⠀⠀⣀⠤⠒⠉⠀⠀⠀⠀\n"
            "      0 ⣀⠤⠒⠉⠀⠀⠀⠀⠀⠀⠀⠀\n"
            "        0          7\n");
}

TEST(LineChart, NoPointAndOnePointAreDrawn) {
  for (const auto& points : {std::vector<std::pair<double, double>>{}, {{3, 5}}}) {
    const std::vector<LineSeries> one{{"a", points}};
    EXPECT_EQ(line_chart_text(one, {.rows = 2}).size(),
              line_chart_text(one, {.rows = 2}).rfind('\n') + 1);
    EXPECT_NE(line_chart_svg(one, {}).find("</svg>"), std::string::npos);
  }
  EXPECT_NE(line_chart_svg({}, {.title = "<&>"}).find("&lt;&amp;&gt;"), std::string::npos);
}

TEST(LineChart, WhatIsNotANumberInterrupts) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const std::vector<LineSeries> s{{"", {{0, 1}, {1, none}, {2, 1}, {3, 1}}}};
  const std::string svg = line_chart_svg(s, {.low = 0, .high = 2});
  EXPECT_NE(svg.find("M 90.00 180.00 M 550.00 180.00 L 780.00 180.00"), std::string::npos) << svg;
}

TEST(LineChart, ValuesBeyondTheAxisStayAtItsEnd) {
  const std::vector<LineSeries> s{{"", {{0, -5}, {1, 500}}}};
  EXPECT_NE(line_chart_text(s, {.low = 0, .high = 100, .rows = 2}).find("    100 "),
            std::string::npos);
}

TEST(SideBySide, FillsRows) {
  EXPECT_EQ(side_by_side({"a\nbb\n", "⠀⠀\n", "d\n"}, 6), "a   ⠀⠀\nbb\nd\n");
  EXPECT_EQ(side_by_side({}, 80), "");
}

}  // namespace
}  // namespace lockstep
