// Expressions in job files, for example "round(16 / sqrt(depth))".
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

// Named numbers for use in expressions. Immutable, thread-safe.
//
// Expressions support + - * / ^ ( ), comparisons, `a ? b : c`, and the functions round (halves away
// from zero), sqrt, floor, ceil, min, max (any number of arguments), abs, log (natural), exp, pow.
class Variables {
 public:
  using Definition = std::variant<double, std::string>;  // a number, or an expression

  Variables() = default;
  // Definitions may use each other in any order. Throws InvalidArgument naming the variable if its
  // name is not a word or is a function's name, if its expression fails or does not give a finite
  // number, and if definitions form a cycle, which the message lists.
  explicit Variables(const std::map<std::string, Definition>& definitions);

  // Evaluates an expression. Throws InvalidArgument naming `where` if it cannot be parsed, uses an
  // unknown name (the hint is the nearest name) or does not give a finite number.
  double evaluate(const std::string& text, const std::string& where) const;

  const std::map<std::string, double>& values() const { return values_; }

 private:
  std::map<std::string, double> values_;
};

}  // namespace lockstep
