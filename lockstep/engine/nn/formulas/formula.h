// The expressions that users write for losses and layers, "huber(output, target, delta=0.1)", as
// trees. A formula here is the parsed expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// A range in a text, in bytes: from begin to before end.
struct TextRange {
  size_t begin = 0, end = 0;
};

struct FormulaNode;
using FormulaNodePtr = std::shared_ptr<const FormulaNode>;

struct FormulaArgument {
  std::string name;  // "": by position
  FormulaNodePtr value;
  TextRange at = {};  // with its name
};

// Immutable.
struct FormulaNode {
  enum class Kind : uint8_t { number, name, operation, call, list };
  Kind kind = Kind::number;
  double number = 0;  // finite, not negative
  // The name, the function of a call, or the sign of an operation: "-" with one argument, or "+",
  // "-", "*", "/", "**", "<", "<=", ">", ">=", "==" with two.
  std::string name = {};
  std::vector<FormulaArgument> arguments = {};
  TextRange at = {};  // what an error underlines: an operation's sign, or a whole call
};

// Immutable, thread-safe.
struct Formula {
  std::string text;
  std::string where;  // what errors begin with: "[network] loss"
  FormulaNodePtr root;
};

// Whether two trees are the same, wherever their texts have them.
bool same_formula(const FormulaNode& a, const FormulaNode& b);

// The text of a tree, with the parentheses that it needs. Parsed, it gives the same tree.
std::string formula_text(const FormulaNode& node);

// Throws InvalidArgument "WHERE, column N: PROBLEM" with the line of the text and a mark below the
// range. Long lines are cut around the range.
[[noreturn]] void refuse_formula(const Formula& formula, TextRange at, const std::string& problem,
                                 const std::string& hint = {});

}  // namespace lockstep
