// Common parts of SVG drawings.
#pragma once

#include <string>

namespace lockstep {

// Escapes text for use between tags. Thread-safe.
std::string svg_escaped(const std::string& text);

// The begin of an SVG document with a white background, a title and axis labels around an inner
// rectangle. Sizes are in pixels. The caller appends the content and "</svg>\n". Thread-safe.
struct SvgFrame {
  double width = 800, height = 360, left = 90, right = 20, top = 50, bottom = 50;
  std::string title, x_label, y_label;

  double inner_width() const { return width - left - right; }
  double inner_height() const { return height - top - bottom; }
};
std::string svg_begin(const SvgFrame& frame);
// `anchor` is start, middle or end. `more` holds further attributes, with a leading space.
std::string svg_label(double x, double y, const char* anchor, const std::string& text,
                      const char* more = "");

}  // namespace lockstep
