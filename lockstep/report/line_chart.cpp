#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/report/charts.h"
#include "lockstep/report/svg.h"

namespace lockstep {
namespace {

using Point = std::pair<double, double>;

bool finite(const Point& p) { return std::isfinite(p.first) && std::isfinite(p.second); }

std::string number(double value) { return fmt::format("{:.4g}", value); }

// The visible part of the plane. Never empty.
struct View {
  double left = 0, right = 1, low = 0, high = 1;

  View(std::span<const LineSeries> series, const LineChartOptions& options) {
    bool any = false;
    for (const LineSeries& s : series) {
      for (const Point& p : s.points) {
        if (!finite(p)) continue;
        if (!any) left = right = p.first, low = high = p.second;
        any = true;
        left = std::min(left, p.first);
        right = std::max(right, p.first);
        low = std::min(low, p.second);
        high = std::max(high, p.second);
      }
    }
    if (options.high > options.low) low = options.low, high = options.high;
    if (!(right > left)) right = left + 1;
    if (!(high > low)) high = low + 1;
  }
  // Relative position from 0 to 1, measured from the left and from the top.
  double x(double value) const { return (value - left) / (right - left); }
  double y(double value) const { return std::clamp((high - value) / (high - low), 0.0, 1.0); }
};

// A drawing of dots. Each character has 2 x 4 dots.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns), rows_(rows), dots_(static_cast<size_t>(columns * rows), 0) {}

  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }

  void dot(int x, int y) {
    // Unicode numbers the upper three dots of the left column, then of the right column, then the
    // lowest row.
    constexpr std::array<std::array<unsigned char, 2>, 4> bits{
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    dots_[static_cast<size_t>(y / 4 * columns_ + x / 2)] |=
        bits[static_cast<size_t>(y % 4)][static_cast<size_t>(x % 2)];
  }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / steps;
      dot(static_cast<int>(std::lround(x0 + part * (x1 - x0))),
          static_cast<int>(std::lround(y0 + part * (y1 - y0))));
    }
  }

  // One row of characters U+2800 to U+28FF in UTF-8.
  std::string row(int r) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) {
      const unsigned code = 0x2800u + dots_[static_cast<size_t>(r * columns_ + c)];
      text += static_cast<char>(0xe0 | (code >> 12));
      text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
    return text;
  }

 private:
  const int columns_, rows_;
  std::vector<unsigned char> dots_;
};

// Round numbers in [low, high]: multiples of 1, 2 or 5 times a power of ten. There are four to ten
// of them.
std::vector<double> ticks(double low, double high) {
  const double power = std::pow(10.0, std::floor(std::log10((high - low) / 4)));
  double step = power;
  for (const double factor : {2.0, 5.0}) {
    if (factor * power <= (high - low) / 4) step = factor * power;
  }
  std::vector<double> all;
  for (double i = std::ceil(low / step); i * step <= high && all.size() < 20; ++i) {
    all.push_back(i * step);
  }
  return all;
}

// The number of columns of a text: counts characters, not bytes.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string padded(std::string text, size_t columns) {
  const size_t width = width_of(text);
  if (width < columns) text.append(columns - width, ' ');
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string line_chart_text(std::span<const LineSeries> series, const LineChartOptions& options) {
  const View view(series, options);
  const int columns = std::max(options.columns, 20), rows = std::max(options.rows, 2);
  constexpr int margin = 8;  // for the limits of the y axis
  Canvas canvas(columns - margin, rows);
  const auto x = [&](const Point& p) {
    return static_cast<int>(std::lround(view.x(p.first) * (canvas.width() - 1)));
  };
  const auto y = [&](const Point& p) {
    return static_cast<int>(std::lround(view.y(p.second) * (canvas.height() - 1)));
  };
  for (const LineSeries& s : series) {
    for (size_t i = 0; i < s.points.size(); ++i) {
      if (!finite(s.points[i])) continue;
      const bool joined = i > 0 && finite(s.points[i - 1]);
      const Point& from = joined ? s.points[i - 1] : s.points[i];
      canvas.line(x(from), y(from), x(s.points[i]), y(s.points[i]));
    }
  }
  const auto whole = static_cast<size_t>(columns);
  std::string text;
  if (!options.title.empty()) text += padded(options.title, whole) + "\n";
  for (int r = 0; r < rows; ++r) {
    const std::string label = r == 0 ? number(view.high) : r == rows - 1 ? number(view.low) : "";
    text += fmt::format("{:>{}} ", label, margin - 1) + canvas.row(r) + "\n";
  }
  const std::string left = number(view.left), right = number(view.right);
  const size_t room = whole - margin;
  text += std::string(margin, ' ') + padded(left, room > right.size() ? room - right.size() : 0) +
          right + "\n";
  return text;
}

std::string line_chart_svg(std::span<const LineSeries> series, const LineChartOptions& options) {
  constexpr std::array colors{"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                              "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f"};
  const View view(series, options);
  SvgFrame frame{.title = options.title, .x_label = options.x_label, .y_label = options.y_label};
  const bool named = std::any_of(series.begin(), series.end(),
                                 [](const LineSeries& s) { return !s.name.empty(); });
  if (named) frame.right = 150;
  std::string svg = svg_begin(frame);
  const auto x = [&](double v) { return frame.left + view.x(v) * frame.inner_width(); };
  const auto y = [&](double v) { return frame.top + view.y(v) * frame.inner_height(); };
  const double bottom = frame.top + frame.inner_height();
  for (const double value : ticks(view.low, view.high)) {
    svg += fmt::format(R"(<path d="M {:.1f} {:.1f} h {:.1f}" stroke="#dddddd"/>)"
                       "\n",
                       frame.left, y(value), frame.inner_width());
    svg += svg_label(frame.left - 8, y(value) + 4, "end", number(value));
  }
  for (const double value : ticks(view.left, view.right)) {
    svg += svg_label(x(value), bottom + 18, "middle", number(value));
  }
  for (size_t k = 0; k < series.size(); ++k) {
    const char* const color = colors[k % colors.size()];
    std::string path;
    bool joined = false;
    for (const Point& p : series[k].points) {
      if (finite(p)) {
        path += fmt::format("{} {:.2f} {:.2f} ", joined ? "L" : "M", x(p.first), y(p.second));
      }
      joined = finite(p);
    }
    if (!path.empty()) {
      svg += fmt::format(R"(<path d="{}" stroke="{}" stroke-width="1.5" fill="none"/>)"
                         "\n",
                         path, color);
    }
    if (series[k].name.empty()) continue;
    const double at = frame.top + 10 + 20 * static_cast<double>(k);
    const double from = frame.width - frame.right + 12;
    svg += fmt::format(R"(<path d="M {:.1f} {:.1f} h 18" stroke="{}" stroke-width="3"/>)"
                       "\n",
                       from, at, color);
    svg += svg_label(from + 24, at + 4, "start", series[k].name);
  }
  svg += fmt::format(R"(<path d="M {0} {1} V {2} H {3}" stroke="black" fill="none"/>)"
                     "\n</svg>\n",
                     frame.left, frame.top, bottom, frame.left + frame.inner_width());
  return svg;
}

std::string side_by_side(const std::vector<std::string>& texts, int columns, int gap) {
  std::vector<std::vector<std::string>> blocks;
  size_t widest = 1;
  for (const std::string& text : texts) {
    blocks.push_back(lines_of(text));
    for (const std::string& line : blocks.back()) widest = std::max(widest, width_of(line));
  }
  const auto space = static_cast<size_t>(std::max(gap, 0));
  const size_t room = static_cast<size_t>(std::max(columns, 1)) + space;
  const size_t in_a_row = std::max<size_t>(1, room / (widest + space));
  std::string all;
  for (size_t first = 0; first < blocks.size(); first += in_a_row) {
    const size_t last = std::min(blocks.size(), first + in_a_row);
    size_t height = 0;
    for (size_t i = first; i < last; ++i) height = std::max(height, blocks[i].size());
    for (size_t r = 0; r < height; ++r) {
      std::string line;
      for (size_t i = first; i < last; ++i) {
        line = padded(std::move(line), (i - first) * (widest + space));
        if (r < blocks[i].size()) line += blocks[i][r];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      all += line + "\n";
    }
  }
  return all;
}

}  // namespace lockstep
