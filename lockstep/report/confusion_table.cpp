#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/report/charts.h"

namespace lockstep {
namespace {

constexpr size_t most_name = 20, least_name = 8;

// Counts characters, not bytes: continuation bytes of UTF-8 do not count.
size_t length_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// Cuts or pads text to `width` characters. Control characters become "?".
std::string fitted(const std::string& text, size_t width) {
  const bool cut = length_of(text) > width;
  std::string result;
  size_t characters = 0;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool starts = (byte & 0xc0) != 0x80;
    if (starts && characters == (cut ? width - 1 : width)) break;
    characters += starts ? 1 : 0;
    result += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  if (cut) return result + "~";
  return result + std::string(width - characters, ' ');
}

std::string share(double value, int decimals = 1) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", 100 * value, decimals);
}

constexpr size_t recall_width = 6;  // width of its title

// The layout of a matrix.
struct Drawing {
  size_t number = 0;  // width of the class numbers; 0: columns have names
  size_t name = 0, cell = 0;

  size_t head() const { return name + (number > 0 ? number + 1 : 0); }
  size_t width(const ConfusionMatrix& m) const {
    return head() + static_cast<size_t>(m.size()) * (cell + 1) + 2 + recall_width;
  }
};

std::string matrix_lines(const ConfusionMatrix& m, const Drawing& d) {
  const auto name = [&](int64_t c) { return m.classes[static_cast<size_t>(c)]; };
  std::string text = "rows: true classes, columns: predicted; recall and precision in percent\n";
  std::string precision = fitted("precision", d.head());
  text += fitted("", d.head());
  for (int64_t c = 0; c < m.size(); ++c) {
    const std::string title =
        d.number > 0 ? std::to_string(c + 1) : fitted(name(c), length_of(name(c)));
    text += " " + std::string(d.cell - length_of(title), ' ') + title;
    precision +=
        fmt::format(" {:>{}}", share(m.of_class(c).precision(), d.cell < 5 ? 0 : 1), d.cell);
  }
  text += "  recall\n";
  for (int64_t c = 0; c < m.size(); ++c) {
    if (d.number > 0) text += fmt::format("{:>{}} ", c + 1, d.number);
    text += fitted(name(c), d.name);
    for (int64_t p = 0; p < m.size(); ++p) {
      const int64_t n = m.count(c, p);
      text += fmt::format(" {:>{}}", n == 0 ? "." : std::to_string(n), d.cell);
    }
    text += fmt::format("  {:>{}}\n", share(m.of_class(c).recall()), recall_width);
  }
  return text + precision + "\n";
}

// The most lines of a list.
constexpr size_t most_classes = 100, most_pairs = 20;

std::string list_lines(const ConfusionMatrix& m, size_t name_width, size_t room) {
  struct Error {
    int64_t count = 0, predicted = 0;
  };
  std::vector<Error> main(m.classes.size());  // the most frequent one of each class
  for (const ConfusionMatrix::Cell& cell : m.cells()) {
    Error& error = main[static_cast<size_t>(cell.observed)];
    if (cell.observed != cell.predicted && cell.count > error.count) {
      error = {cell.count, cell.predicted};
    }
  }
  std::vector<int64_t> listed = m.worst_classes(most_classes);
  std::string text;
  if (listed.size() < m.classes.size()) {
    std::ranges::stable_sort(listed, std::ranges::greater(),
                             [&](int64_t c) { return m.of_class(c).errors(); });
    text = fmt::format("the {} of {} classes with the most errors:\n", listed.size(), m.size());
  }
  text += fmt::format("{}  {:>12}  {:>8}  {:>11}  mainly predicted as\n",
                      fitted("class", name_width), "observations", "recall %", "precision %");
  for (const int64_t c : listed) {
    const ClassCounts& of = m.of_class(c);
    const auto& [most, other] = main[static_cast<size_t>(c)];
    std::string line = fmt::format("{}  {:>12}  {:>8}  {:>11}",
                                   fitted(m.classes[static_cast<size_t>(c)], name_width),
                                   of.observed, share(of.recall()), share(of.precision()));
    if (most > 0) {
      const std::string& name = m.classes[static_cast<size_t>(other)];
      const std::string count = fmt::format(" ({})", most);
      const size_t taken = length_of(line) + 2 + count.size();
      const size_t left = std::max(room > taken ? room - taken : 0, least_name);
      line += "  " + fitted(name, std::min({length_of(name), name_width, left})) + count;
    }
    text += line + "\n";
  }
  if (listed.size() == m.classes.size()) return text;
  text += "the most frequent errors:\n";
  const size_t each = std::min(name_width, room > 40 ? (room - 20) / 2 : least_name);
  for (const ConfusionMatrix::Cell& cell : m.worst_pairs(most_pairs)) {
    const std::string& from = m.classes[static_cast<size_t>(cell.observed)];
    const std::string& to = m.classes[static_cast<size_t>(cell.predicted)];
    text += fmt::format("{} as {}  {}\n", fitted(from, each), fitted(to, each), cell.count);
  }
  return text;
}

}  // namespace

std::string confusion_table(const ConfusionMatrix& m, int width) {
  const auto room = static_cast<size_t>(std::max(width, 1));
  size_t longest = 0, least_cell = 3;
  for (const std::string& name : m.classes) longest = std::max(longest, length_of(name));
  for (const auto& cell : m.cells()) {
    least_cell = std::max(least_cell, std::to_string(cell.count).size());
  }
  // Shares have a decimal place if there is room for it.
  for (const size_t cell : {std::max<size_t>(least_cell, 5), least_cell}) {
    Drawing d{0, std::max(longest, std::string("precision").size()), cell};
    if (longest <= cell && d.width(m) <= room) return matrix_lines(m, d);
    d.number = std::to_string(m.size()).size();
    d.name = least_name;
    if (d.width(m) > room) continue;
    d.name = std::min({room - d.width(m) + least_name, std::max(longest, least_name), most_name});
    return matrix_lines(m, d);
  }
  return list_lines(m, std::min(std::max(longest, least_name), most_name), room);
}

}  // namespace lockstep
