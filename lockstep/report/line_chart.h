// Curves: as text for a terminal, and as SVG.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct LineSeries {
  std::string name = {};
  std::vector<std::pair<double, double>> points;  // x, y, in the order in which they are joined
};

struct LineChartOptions {
  std::string title = {};
  std::string x_label = {}, y_label = {};  // SVG only
  // Of the y axis; both 0: as wide as the points.
  double low = 0, high = 0;
  int columns = 60;  // text: width with the axis, 20 or more
  int rows = 10;     // text: height of the drawing, 2 or more
};

// Lines of equally many columns that end in newlines: the title, the drawing in braille patterns
// (eight dots a character) with the ends of the y axis beside it, those of the x axis below. Points
// that are no finite numbers interrupt a curve. Pure functions.
std::string line_chart_text(std::span<const LineSeries> series, const LineChartOptions& options);
// A whole SVG document of 800 x 360, with a legend where series have names.
std::string line_chart_svg(std::span<const LineSeries> series, const LineChartOptions& options);

// Texts beside each other, `gap` columns apart, as many in a row as `columns` has room for.
std::string side_by_side(const std::vector<std::string>& texts, int columns, int gap = 2);

}  // namespace lockstep
