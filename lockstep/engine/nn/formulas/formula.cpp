#include "lockstep/engine/nn/formulas/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

using NodeKind = FormulaNode::Kind;

// How strongly operations bind, as in Python.
struct Binding {
  enum : int { comparison = 1, sum, product, sign, power, whole };
};

int binding_of(const FormulaNode& node) {
  if (node.kind != NodeKind::operation) return Binding::whole;
  if (node.arguments.size() == 1) return Binding::sign;
  if (node.name == "**") return Binding::power;
  if (node.name == "*" || node.name == "/") return Binding::product;
  return node.name == "+" || node.name == "-" ? Binding::sum : Binding::comparison;
}

// `least`: what binds less is put in parentheses.
void write_formula(const FormulaNode& node, int least, std::string& out) {
  const int binding = binding_of(node);
  if (binding < least) out += '(';
  switch (node.kind) {
    case NodeKind::number:
      out += fmt::format("{}", node.number);
      break;
    case NodeKind::name:
      out += node.name;
      break;
    case NodeKind::operation:
      if (binding == Binding::sign) {
        out += node.name;
        write_formula(*node.arguments[0].value, Binding::sign, out);
        break;
      }
      // A power binds to the right, comparisons to neither side.
      write_formula(*node.arguments[0].value,
                    binding == Binding::sum || binding == Binding::product ? binding : binding + 1,
                    out);
      out += binding == Binding::power ? node.name : " " + node.name + " ";
      write_formula(*node.arguments[1].value,
                    binding == Binding::power ? Binding::sign : binding + 1, out);
      break;
    case NodeKind::call:
    case NodeKind::list:
      out += node.kind == NodeKind::call ? node.name + "(" : "[";
      for (size_t i = 0; i < node.arguments.size(); ++i) {
        const FormulaArgument& argument = node.arguments[i];
        out += i > 0 ? ", " : "";
        if (!argument.name.empty()) out += argument.name + "=";
        write_formula(*argument.value, 0, out);
      }
      out += node.kind == NodeKind::call ? ')' : ']';
      break;
  }
  if (binding < least) out += ')';
}

// Columns that text takes on a terminal, where each character takes one.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

// The line with the position, and marks below.
std::string marked_line(std::string_view line, TextRange at) {
  constexpr size_t before = 40, shown = 80;
  size_t first = at.begin > before ? at.begin - before : 0;
  if (line.size() <= shown) first = 0;
  const size_t end = std::min(line.size(), first + shown), stop = std::clamp(at.end, first, end);
  const auto part = [&](size_t from, size_t to) { return printable(line.substr(from, to - from)); };
  const std::string lead = (first > 0 ? "..." : "") + part(first, std::min(at.begin, end));
  const std::string marked = stop > at.begin ? part(at.begin, stop) : "";
  const std::string rest = stop < end ? part(std::max(stop, at.begin), end) : "";
  const size_t marks = std::max<size_t>(width_of(marked), 1);
  return "\n    " + lead + marked + rest + (end < line.size() ? "..." : "") + "\n    " +
         std::string(width_of(lead), ' ') + "^" + std::string(marks - 1, '~');
}

}  // namespace

bool same_formula(const FormulaNode& a, const FormulaNode& b) {
  return a.kind == b.kind && a.number == b.number && a.name == b.name &&
         std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    [](const FormulaArgument& x, const FormulaArgument& y) {
                      return x.name == y.name && same_formula(*x.value, *y.value);
                    });
}

std::string formula_text(const FormulaNode& node) {
  std::string text;
  write_formula(node, 0, text);
  return text;
}

void refuse_formula(const Formula& formula, TextRange at, const std::string& problem,
                    const std::string& hint) {
  const std::string_view text = formula.text;
  at.begin = std::min(at.begin, text.size());
  size_t start = 0, number = 1;
  for (size_t i = 0; i < at.begin; ++i) {
    if (text[i] != '\n') continue;
    start = i + 1;
    ++number;
  }
  const std::string_view line = text.substr(start, text.find('\n', start) - start);
  const size_t column = width_of(line.substr(0, at.begin - start)) + 1;
  const bool several = text.find('\n') != std::string_view::npos;
  throw InvalidArgument(
      formula.where + (several ? fmt::format(", line {}", number) : "") +
          fmt::format(", column {}: {}", column, problem) +
          marked_line(line, {at.begin - start, std::max(at.end, at.begin) - start}),
      hint);
}

}  // namespace lockstep
