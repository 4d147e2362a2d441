// Bars for a row of numbers, upwards and downwards from zero: as text for a terminal, and as SVG.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct BarChartOptions {
  std::string title = {};
  std::string x_label = {}, y_label = {};  // SVG only
  int columns = 72;                        // text: width of the drawing, 20 or more
  int rows = 10;                           // text: height, 2 or more
};

// Lines of text that end in newlines: the title, the largest and the smallest value beside the
// bars. With more values than columns each column shows the one farthest from zero of those it
// stands for. Values that are no finite numbers count as 0. Pure functions.
std::string bar_chart_text(std::span<const float> values, const BarChartOptions& options);
// A whole SVG document of 800 x 360, with axes and a mark at each value's place.
std::string bar_chart_svg(std::span<const float> values, const BarChartOptions& options);

}  // namespace lockstep
