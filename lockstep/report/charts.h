// Charts as text for a terminal and as SVG: lines, and bars upwards and downwards from zero. Tables
// as text: a confusion matrix, and the time profile of a training.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/engine/nn/metrics/confusion_matrix.h"
#include "lockstep/train/profile/profile.h"

namespace lockstep {

struct LineSeries {
  std::string name = {};
  std::vector<std::pair<double, double>> points;  // x, y, in drawing order
};

struct LineChartOptions {
  std::string title = {};
  std::string x_label = {}, y_label = {};  // SVG only
  // Range of the y axis. If both are 0, the range of the points.
  double low = 0, high = 0;
  int columns = 60;  // text: total width including the axis, at least 20
  int rows = 10;     // text: height of the drawing, at least 2
};

// Text lines that all have the same number of columns and end in newlines: the title, the drawing
// in braille characters (eight dots each) with the limits of the y axis next to it, and the limits
// of the x axis below. A point that is not finite interrupts its curve. Pure functions.
std::string line_chart_text(std::span<const LineSeries> series, const LineChartOptions& options);
// A complete SVG document of 800 x 360 pixels, with a legend if the series have names.
std::string line_chart_svg(std::span<const LineSeries> series, const LineChartOptions& options);

// Arranges texts side by side, `gap` columns apart, with as many in a row as fit into
// `columns`.
std::string side_by_side(const std::vector<std::string>& texts, int columns, int gap = 2);

struct BarChartOptions {
  std::string title = {};
  std::string x_label = {}, y_label = {};  // SVG only
  int columns = 72;                        // text: width of the drawing, at least 20
  int rows = 10;                           // text: height, at least 2
};

// Text lines that end in newlines: the title, then the bars with the largest and the smallest value
// next to them. If there are more values than columns, each column shows its value that is farthest
// from zero. Values that are not finite count as 0. Pure functions.
std::string bar_chart_text(std::span<const float> values, const BarChartOptions& options);
// A complete SVG document of 800 x 360 pixels, with axes and a bar for each value.
std::string bar_chart_svg(std::span<const float> values, const BarChartOptions& options);

// An aligned table for a terminal of `width` columns. Each true class has a row with its counts by
// predicted class and its recall. The last row has the precision of each predicted class. Both are
// in percent, "-" if undefined. Zeros are shown as dots. Long class names are cut, and columns then
// have numbers instead of names. If the table does not fit, the result is a list: each class with
// its number of observations, recall, precision and the class it is most often mistaken for. Ends
// with a newline. Thread-safe.
std::string confusion_table(const ConfusionMatrix& matrix, int width);

// A table for a terminal of `width` columns. Each account has its milliseconds in an iteration
// (mean of the threads), its share of the wall time, its floor, and the ratio of the floor to its
// time. Accounts below `least` (a share) are combined into one row. Sums of each phase and of all
// accounts follow, then the time that the passes alone would take. Lines end in newlines.
// Thread-safe.
std::string profile_table(const Profile& profile, int width, double least = 0.002);

// The profile as JSON text, without the spans. Thread-safe.
std::string profile_json(const Profile& profile);

// The spans in the Trace Event Format (complete events, one row for each thread, microseconds),
// which Perfetto and chrome://tracing read. Thread-safe.
std::string chrome_trace(const Profile& profile);

}  // namespace lockstep
