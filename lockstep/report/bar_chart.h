// Bar charts of numbers, upwards and downwards from zero: as text for a terminal, and as SVG.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct BarChartOptions {
  std::string title = {};
  std::string x_label = {}, y_label = {};  // SVG only
  int columns = 72;                        // text: width of the drawing, at least 20
  int rows = 10;                           // text: height, at least 2
};

// Text lines that end in newlines: the title, then the bars with the largest and the smallest value
// beside them. If there are more values than columns, each column shows its value that is farthest
// from zero. Values that are not finite count as 0. Pure functions.
std::string bar_chart_text(std::span<const float> values, const BarChartOptions& options);
// A complete SVG document of 800 x 360 pixels, with axes and a bar for each value.
std::string bar_chart_svg(std::span<const float> values, const BarChartOptions& options);

}  // namespace lockstep
