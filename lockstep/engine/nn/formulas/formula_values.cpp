#include "lockstep/engine/nn/formulas/formula_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/nn/formulas/formula_functions.h"

namespace lockstep {
namespace {

using NodeKind = FormulaNode::Kind;
using ParameterKind = FormulaParameter::Kind;

const FormulaFunction& function_of(const Formula& formula, const FormulaNode& call) {
  if (const FormulaFunction* found = find_formula_function(call.name)) return *found;
  for (const char* coupled : {"info_nce", "infonce", "nt_xent", "contrastive", "supcon"}) {
    if (call.name.find(coupled) == std::string::npos) continue;
    refuse_formula(formula, call.at,
                   "`" + call.name + "` couples observations, but an expression is about one",
                   "in C++ a loss of your own takes all observations if the mini-batch is one "
                   "shard: sharded_value_and_gradient()");
  }
  std::vector<std::string> names;
  for (const FormulaFunction& f : formula_functions()) names.push_back(f.name);
  refuse_formula(formula, {call.at.begin, call.at.begin + call.name.size()},
                 "unknown function `" + call.name + "`", suggest(call.name, names));
}

bool is_list(ParameterKind kind) {
  return kind == ParameterKind::axes || kind == ParameterKind::numbers;
}

bool is_known_number(ParameterKind kind) {
  return kind == ParameterKind::number || kind == ParameterKind::flag || is_list(kind);
}

// The argument of each parameter; null: its default.
std::vector<const FormulaNode*> arguments_of(const Formula& formula, const FormulaNode& call,
                                             const FormulaFunction& function) {
  const auto& parameters = function.parameters;
  std::vector<const FormulaNode*> found(parameters.size());
  size_t position = 0;
  for (const FormulaArgument& argument : call.arguments) {
    size_t p = position;
    if (argument.name.empty()) {
      ++position;
      if (p >= parameters.size() || parameters[p].by_name) {
        const std::string other = call.name == "max" || call.name == "min"
                                      ? "; of two values " + call.name + "imum(a, b)"
                                      : "";
        refuse_formula(
            formula, argument.at,
            fmt::format("{}() has {} by position{}", call.name,
                        p == 1 ? "one argument" : fmt::format("{} arguments", p),
                        p < parameters.size() ? ", and `" + parameters[p].name + "` by name" : ""),
            "it is " + function.signature() + other);
      }
    } else {
      std::vector<std::string> names;
      for (const FormulaParameter& parameter : parameters) names.push_back(parameter.name);
      p = static_cast<size_t>(std::find(names.begin(), names.end(), argument.name) - names.begin());
      if (p == names.size()) {
        refuse_formula(formula, argument.at,
                       call.name + "() has no argument `" + argument.name + "`",
                       suggest(argument.name, names));
      }
    }
    if (found[p]) {
      refuse_formula(formula, argument.at,
                     call.name + "() has the argument `" + parameters[p].name + "` twice");
    }
    found[p] = argument.value.get();
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (found[p] || parameters[p].otherwise || is_list(parameters[p].kind)) continue;
    refuse_formula(formula, call.at,
                   call.name + "() needs the argument `" + parameters[p].name + "`",
                   "it is " + function.signature());
  }
  return found;
}

bool is_labels(ParameterKind kind) {
  return kind == ParameterKind::labels || kind == ParameterKind::labels_or_shares;
}

// Calls visit(node, as) for the node and all below; `as`: what the parameter that takes it is.
template <class Visit>
void walk(const Formula& formula, const FormulaNode& node, ParameterKind as, const Visit& visit) {
  visit(node, as);
  if (node.kind != NodeKind::call) {
    // A sum of labels is not labels.
    const ParameterKind below = is_known_number(as) ? as : ParameterKind::value;
    for (const FormulaArgument& argument : node.arguments) {
      walk(formula, *argument.value, below, visit);
    }
    return;
  }
  const FormulaFunction& function = function_of(formula, node);
  const auto arguments = arguments_of(formula, node, function);
  for (size_t p = 0; p < arguments.size(); ++p) {
    if (arguments[p]) walk(formula, *arguments[p], function.parameters[p].kind, visit);
  }
}

// The value of an expression of numbers alone.
double number_of(const Formula& formula, const FormulaNode& node) {
  if (node.kind == NodeKind::number) return node.number;
  if (node.kind != NodeKind::operation || node.name == "**") {
    refuse_formula(formula, node.at, "expected a number", "numbers and + - * / are possible here");
  }
  std::vector<FormulaOperand> operands;
  for (const FormulaArgument& a : node.arguments) {
    operands.push_back({number_of(formula, *a.value)});
  }
  try {
    return *apply_operation(node.name, operands, {}).number;
  } catch (const InvalidArgument& e) {
    refuse_formula(formula, node.at, e.what(), e.hint());
  }
}

// One number, or a list.
std::vector<double> numbers_of(const Formula& formula, const FormulaNode& node,
                               ParameterKind kind) {
  std::vector<double> numbers;
  const auto add = [&](const FormulaNode& entry) {
    const double number = number_of(formula, entry);
    if (kind == ParameterKind::axes && (number != std::floor(number) || std::abs(number) > 100)) {
      refuse_formula(formula, entry.at,
                     fmt::format("an axis is a whole number, received {}", number));
    }
    numbers.push_back(number);
  };
  if (node.kind != NodeKind::list) {
    add(node);
  } else {
    for (const FormulaArgument& entry : node.arguments) add(*entry.value);
  }
  return numbers;
}

// Checks one node. What follows from shapes is not checked here.
void check_node(const Formula& formula, const FormulaNames& names, const FormulaNode& node,
                ParameterKind as) {
  const bool labels =
      node.kind == NodeKind::name && !names.labels.empty() && node.name == names.labels;
  if (as == ParameterKind::labels && !labels) {
    refuse_formula(formula, node.at, "expected labels",
                   names.labels.empty() ? "only losses of classifiers have labels"
                                        : "the labels are `" + names.labels + "`");
  }
  if (is_list(as)) {
    numbers_of(formula, node, as);
    return;
  }
  if (node.kind == NodeKind::list) {
    refuse_formula(formula, node.at, "a list is possible only for axis and weights");
  }
  if (is_known_number(as)) {
    const double number = number_of(formula, node);
    if (as == ParameterKind::flag && number != 0 && number != 1) {
      refuse_formula(formula, node.at, fmt::format("expected 0 or 1, received {}", number));
    }
    return;
  }
  if (node.kind != NodeKind::name) return;
  if (std::find(names.values.begin(), names.values.end(), node.name) == names.values.end()) {
    const FormulaFunction* function = find_formula_function(node.name);
    refuse_formula(
        formula, node.at, "unknown name `" + node.name + "`",
        function ? "the function is " + function->signature() : suggest(node.name, names.values));
  }
  if (labels && !is_labels(as)) {
    refuse_formula(formula, node.at,
                   "`" + node.name + "` is labels here, as a function takes it for its labels",
                   "one_hot(" + node.name + ", classes) gives numbers");
  }
}

// Adds ops. The formula is checked.
class FormulaEvaluation {
 public:
  FormulaEvaluation(const Formula& formula, const FormulaNames& names,
                    const std::vector<Value>& values)
      : formula_(formula), names_(names), values_(values) {}

  FormulaOperand operand(const FormulaNode& node) const {
    switch (node.kind) {
      case NodeKind::number:
        return {node.number};
      case NodeKind::name: {
        const auto found = std::find(names_.values.begin(), names_.values.end(), node.name);
        return {{}, values_.at(static_cast<size_t>(found - names_.values.begin()))};
      }
      case NodeKind::operation: {
        std::vector<FormulaOperand> operands;
        for (const FormulaArgument& a : node.arguments) operands.push_back(operand(*a.value));
        return placed(node, [&] { return apply_operation(node.name, operands, values_.front()); });
      }
      case NodeKind::call:
        return {{}, call(node)};
      case NodeKind::list:
        break;
    }
    throw InternalError("[formula] a list has no value");
  }

 private:
  Value call(const FormulaNode& node) const {
    const FormulaFunction& function = function_of(formula_, node);
    const auto arguments = arguments_of(formula_, node, function);
    FormulaCall call{std::vector<FormulaOperand>(arguments.size()), {}, values_.front()};
    call.lists.resize(arguments.size());
    for (size_t p = 0; p < arguments.size(); ++p) {
      const FormulaParameter& parameter = function.parameters[p];
      if (!arguments[p]) {
        call.operands[p].number = parameter.otherwise;
      } else if (is_list(parameter.kind)) {
        call.lists[p] = numbers_of(formula_, *arguments[p], parameter.kind);
      } else {
        call.operands[p] = operand(*arguments[p]);
      }
    }
    return placed(node, [&] { return function.apply(call); });
  }

  // Errors of ops get the position.
  template <class Apply>
  auto placed(const FormulaNode& node, const Apply& apply) const -> decltype(apply()) {
    try {
      return apply();
    } catch (const InvalidArgument& e) {
      refuse_formula(formula_, node.at, e.what(), e.hint());
    }
  }

  const Formula& formula_;
  const FormulaNames& names_;
  const std::vector<Value>& values_;
};

}  // namespace

void check_formula(const Formula& formula, const FormulaNames& names) {
  walk(formula, *formula.root, ParameterKind::value,
       [&](const FormulaNode& node, ParameterKind as) { check_node(formula, names, node, as); });
}

int uses_of_name(const Formula& formula, const std::string& name) {
  int uses = 0;
  walk(formula, *formula.root, ParameterKind::value, [&](const FormulaNode& node, ParameterKind) {
    uses += node.kind == NodeKind::name && node.name == name ? 1 : 0;
  });
  return uses;
}

bool takes_as_labels(const Formula& formula, const std::string& name) {
  bool found = false;
  walk(formula, *formula.root, ParameterKind::value,
       [&](const FormulaNode& node, ParameterKind as) {
         found |= node.kind == NodeKind::name && node.name == name && is_labels(as);
       });
  return found;
}

Value formula_value(const Formula& formula, const FormulaNames& names,
                    const std::vector<Value>& values) {
  check_formula(formula, names);
  const FormulaOperand result = FormulaEvaluation(formula, names, values).operand(*formula.root);
  if (result.number || result.value.shape().rank() == 0) {
    std::string known;
    for (const std::string& name : names.values)
      known += (known.empty() ? "`" : ", `") + name + "`";
    refuse_formula(formula, {0, formula.text.size()},
                   "the expression has the same value for all observations", "use one of " + known);
  }
  return result.value;
}

}  // namespace lockstep
