#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/report/charts.h"

namespace lockstep {
namespace {

TEST(BarChart, DrawsUpAndDownFromZero) {
  const std::vector<float> values{1, 4, 0, -2};
  EXPECT_EQ(bar_chart_text(values, {.title = "four bars", .rows = 6}),
            "four bars\n"
            "         4 | #\n"
            "           | #\n"
            "           | #\n"
            "           |##\n"
            "         0 |++-+\n"
            "           |   #\n"
            "        -2 |   #\n");
}

TEST(BarChart, ZerosAndNoValuesAreALine) {
  EXPECT_EQ(bar_chart_text(std::vector<float>(3, 0.0f), {}), "         0 |---\n");
  EXPECT_EQ(bar_chart_text({}, {}), "         0 |\n");
  EXPECT_NE(bar_chart_svg({}, {}).find("</svg>"), std::string::npos);
}

TEST(BarChart, ManyValuesShareColumnsAndTheLargestShows) {
  std::vector<float> values(1000, 0.001f);
  values[537] = -8;
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[4] = std::numeric_limits<float>::infinity();
  const std::string text = bar_chart_text(values, {.columns = 40, .rows = 5});
  EXPECT_NE(text.find("-8 |"), std::string::npos) << text;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 40u + 12u);
  }
}

TEST(BarChart, SvgHasABarForEachValueThatIsNotZero) {
  const std::vector<float> values{1, 0, -3};
  const std::string svg = bar_chart_svg(values, {.title = "a < b & c"});
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  size_t bars = 0;
  for (size_t at = svg.find("<rect x="); at != std::string::npos;
       at = svg.find("<rect x=", at + 1)) {
    ++bars;
  }
  EXPECT_EQ(bars, 2u);
}

}  // namespace
}  // namespace lockstep
