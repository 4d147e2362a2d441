// The functions of formulas: those of lockstep::ops, by the same names, per observation.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/engine/graph/value.h"

namespace lockstep {

// A number, or a value of a graph: n x ... for n observations, or a scalar that no observation
// determines.
struct FormulaOperand {
  std::optional<double> number = std::nullopt;
  Value value = {};
};

struct FormulaParameter {
  enum class Kind : uint8_t {
    value,
    labels,            // the labels of a loss
    labels_or_shares,  // the labels, or the share of each class
    number,            // known without data
    axes,              // numbers of an observation's axes: one or a list
    numbers,           // one or a list, known without data
    flag,              // 0 or 1
  };
  std::string name;
  Kind kind = Kind::value;
  std::optional<double> otherwise = std::nullopt;  // for numbers and flags; nothing: required
  bool by_name = false;                            // only by name
};

// The arguments of a call, by the numbers of their parameters.
struct FormulaCall {
  std::vector<FormulaOperand> operands;                   // values, numbers, flags
  std::vector<std::optional<std::vector<double>>> lists;  // axes, numbers
  Value anchor;                                           // any value of the graph

  double number(size_t i) const { return *operands[i].number; }
  bool flag(size_t i) const { return number(i) != 0; }
  // Numbers become scalars.
  Value value(size_t i) const;
};

struct FormulaFunction {
  std::string name;
  std::vector<FormulaParameter> parameters;
  std::string help;
  // Throws InvalidArgument for values that do not fit.
  std::function<Value(const FormulaCall&)> apply;

  // "huber(prediction, target, delta=1)".
  std::string signature() const;
};

// All functions in alphabetical order. Thread-safe.
const std::vector<FormulaFunction>& formula_functions();
// Null: there is none.
const FormulaFunction* find_formula_function(const std::string& name);

// Adds the functions that take labels.
void add_losses_by_labels(std::vector<FormulaFunction>& all);

// A number as a value in the graph of `anchor`.
Value scalar_value(double number, const Value& anchor);

// A number of an argument as a whole one. Throws InvalidArgument with the argument's name.
int64_t whole_number(const std::string& name, double number, double least, double most);

// Applies the sign of an operation to one or two operands. Numbers alone give numbers, but for **.
FormulaOperand apply_operation(const std::string& sign, const std::vector<FormulaOperand>& operands,
                               const Value& anchor);

}  // namespace lockstep
