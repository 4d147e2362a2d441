#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/report/charts.h"
#include "lockstep/report/svg.h"

namespace lockstep {
namespace {

float finite(float value) { return std::isfinite(value) ? value : 0.0f; }

// Reduces the values to at most `columns`. Each group is represented by its value farthest from
// zero.
std::vector<float> condensed(std::span<const float> values, size_t columns) {
  const size_t count = std::min(columns, values.size());
  std::vector<float> bars(count, 0.0f);
  for (size_t i = 0; i < values.size(); ++i) {
    float& bar = bars[i * count / values.size()];
    if (std::abs(finite(values[i])) > std::abs(bar)) bar = finite(values[i]);
  }
  return bars;
}

// The range to draw. It contains zero.
std::pair<double, double> range_of(std::span<const float> values) {
  double low = 0, high = 0;
  for (float v : values) {
    low = std::min(low, static_cast<double>(finite(v)));
    high = std::max(high, static_cast<double>(finite(v)));
  }
  return {low, high};
}

std::string value_text(double value) { return fmt::format("{:.3g}", value); }

}  // namespace

std::string bar_chart_text(std::span<const float> values, const BarChartOptions& options) {
  const int rows = std::max(options.rows, 2);
  const std::vector<float> bars =
      condensed(values, static_cast<size_t>(std::max(options.columns, 20)));
  const auto range = range_of(bars);
  const double low = range.first, high = range.second;
  const double span = high > low ? high - low : 1;
  // Number of rows above and below the zero line.
  int above = static_cast<int>(std::lround(high / span * rows));
  if (high > 0) above = std::max(above, 1);
  if (low < 0) above = std::min(above, rows - 1);
  const int below = low < 0 ? rows - above : 0;
  std::string text = options.title.empty() ? "" : options.title + "\n";
  const auto line = [&](const std::string& label, auto drawn) {
    text += fmt::format("{:>10} |", label);
    std::string bar;
    for (float v : bars) bar += drawn(static_cast<double>(v));
    bar.erase(bar.find_last_not_of(' ') + 1);
    text += bar + "\n";
  };
  for (int r = above; r > 0; --r) {
    line(r == above ? value_text(high) : "",
         [&](double v) { return v > 0 && v / high * above > r - 1 ? '#' : ' '; });
  }
  line("0", [&](double v) { return v == 0 ? '-' : '+'; });
  for (int r = 1; r <= below; ++r) {
    line(r == below ? value_text(low) : "",
         [&](double v) { return v < 0 && v / low * below > r - 1 ? '#' : ' '; });
  }
  return text;
}

std::string bar_chart_svg(std::span<const float> values, const BarChartOptions& options) {
  const SvgFrame frame{
      .title = options.title, .x_label = options.x_label, .y_label = options.y_label};
  const double left = frame.left, top = frame.top, inner = frame.inner_height();
  const auto range = range_of(values);
  const double low = range.first, high = range.second;
  const double span = high > low ? high - low : 1;
  const auto y = [&](double v) { return top + (high > low ? (high - v) / span : 0.5) * inner; };
  const double step = frame.inner_width() / static_cast<double>(std::max<size_t>(values.size(), 1));
  std::string svg = svg_begin(frame);
  const auto label = [&](double v, const std::string& text) {
    svg += svg_label(left - 8, y(v) + 4, "end", text);
  };
  for (double v : {high, low}) {
    if (v != 0) label(v, value_text(v));
  }
  label(0, "0");
  svg += R"(<g fill="#1f77b4">)"
         "\n";
  for (size_t i = 0; i < values.size(); ++i) {
    const auto v = static_cast<double>(finite(values[i]));
    if (v == 0) continue;
    svg += fmt::format(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>)"
                       "\n",
                       left + static_cast<double>(i) * step, std::min(y(0), y(v)), step * 0.8,
                       std::max(std::abs(y(v) - y(0)), 0.5));
  }
  svg += fmt::format(
      "</g>\n"
      R"(<path d="M {0} {1} V {2} M {0} {3:.1f} H {4}" stroke="black" fill="none"/>)"
      "\n</svg>\n",
      left, top, top + inner, y(0), left + frame.inner_width());
  return svg;
}

}  // namespace lockstep
