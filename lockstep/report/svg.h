// What drawings as SVG share.
#pragma once

#include <string>

namespace lockstep {

// Text as it stands between tags. Thread-safe.
std::string svg_escaped(const std::string& text);

// The beginning of a document of that size, white, with a title and the axes' labels around an
// inner rectangle; the caller adds "</svg>\n". Thread-safe.
struct SvgFrame {
  double width = 800, height = 360, left = 90, right = 20, top = 50, bottom = 50;
  std::string title, x_label, y_label;

  double inner_width() const { return width - left - right; }
  double inner_height() const { return height - top - bottom; }
};
std::string svg_begin(const SvgFrame& frame);
// `anchor`: start, middle or end; `more`: further attributes, with a space in front.
std::string svg_label(double x, double y, const char* anchor, const std::string& text,
                      const char* more = "");

}  // namespace lockstep
