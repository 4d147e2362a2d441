#include "lockstep/report/svg.h"

#include <fmt/format.h>

namespace lockstep {

std::string svg_escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string svg_label(double x, double y, const char* anchor, const std::string& text,
                      const char* more) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>)"
                     "\n",
                     x, y, anchor, more, svg_escaped(text));
}

std::string svg_begin(const SvgFrame& f) {
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
      R"(font-family="sans-serif" font-size="13">)"
      "\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      f.width, f.height);
  svg += svg_label(f.width / 2, 28, "middle", f.title, R"( font-size="16")");
  svg += svg_label(f.left + f.inner_width() / 2, f.height - 14, "middle", f.x_label);
  svg += fmt::format(
      R"TEXT(<text transform="translate(20 {:.1f}) rotate(-90)" text-anchor="middle">)TEXT"
      "{}</text>\n",
      f.top + f.inner_height() / 2, svg_escaped(f.y_label));
  return svg;
}

}  // namespace lockstep
