// Expressions in job files: "round(16 / sqrt(depth))".
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

// Named numbers that expressions may use. Immutable, thread-safe.
//
// Expressions know + - * / ^ ( ), comparisons, `a ? b : c`, and round (halves away from zero),
// sqrt, floor, ceil, min, max (any number of arguments), abs, log (natural), exp, pow.
class Variables {
 public:
  using Definition = std::variant<double, std::string>;  // a number, or an expression

  Variables() = default;
  // Definitions may use each other in any order. Throws InvalidArgument naming the variable: for a
  // name that is no word or is a function's, for an expression that fails or gives no finite
  // number, and for definitions in a circle, which it lists.
  explicit Variables(const std::map<std::string, Definition>& definitions);

  // The value of an expression. Throws InvalidArgument naming `where` for one that cannot be read,
  // uses unknown names (with the nearest) or gives no finite number.
  double evaluate(const std::string& text, const std::string& where) const;

  const std::map<std::string, double>& values() const { return values_; }

 private:
  std::map<std::string, double> values_;
};

}  // namespace lockstep
