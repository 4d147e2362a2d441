#include "lockstep/engine/nn/formulas/formula_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/pointwise.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {
namespace {

using ParameterKind = FormulaParameter::Kind;
using Parameters = std::vector<FormulaParameter>;

std::string observation_text(const Value& value) {
  const Shape shape = value.shape();
  return shape.rank() <= 1 ? "one number" : shape.without_batch().to_string();
}

// Values with axes of 1 before those of their observations, so that observations are broadcast to
// each other and never over the batch.
void align_observations(std::vector<Value>& values) {
  int rank = 0;
  for (const Value& value : values) rank = std::max(rank, value.shape().rank());
  std::vector<int64_t> widest(static_cast<size_t>(rank), 1);
  for (Value& value : values) {
    std::vector<int64_t> dims = value.shape().dims();
    if (dims.empty()) continue;
    const Value given = value;
    dims.insert(dims.begin() + 1, static_cast<size_t>(rank) - dims.size(), 1);
    value = ops::reshaped(value, Shape(dims));
    for (size_t a = 1; a < dims.size(); ++a) {
      if (widest[a] == 1) widest[a] = dims[a];
      if (dims[a] == widest[a] || dims[a] == 1) continue;
      std::string received;
      for (const Value& v : values) {
        const Value& shown = &v == &value ? given : v;
        received += (received.empty() ? "" : " and ") + observation_text(shown);
      }
      throw InvalidArgument("observations cannot be broadcast, received " + received,
                            "aligned at the last axis, axes must be equal or 1");
    }
  }
}

// A function of two arguments of which one may be a number.
template <class Values>
Value apply_to_two(const FormulaOperand& a, const FormulaOperand& b, const Value& anchor,
                   const Values& of_values) {
  std::vector<Value> values{a.number ? scalar_value(*a.number, anchor) : a.value,
                            b.number ? scalar_value(*b.number, anchor) : b.value};
  align_observations(values);
  return of_values(values[0], values[1]);
}

using OfTwo = Value (*)(const Value&, const Value&);

FormulaFunction unary_function(const std::string& name, const std::string& help,
                               Value (*function)(const Value&)) {
  return {name, {{"x"}}, help, [function](const FormulaCall& c) { return function(c.value(0)); }};
}

FormulaFunction binary_function(const std::string& name, const std::string& help, OfTwo function) {
  return {name, {{"a"}, {"b"}}, help, [function](const FormulaCall& c) {
            return apply_to_two(c.operands[0], c.operands[1], c.anchor, function);
          }};
}

// An activation with a setting.
FormulaFunction with_number(const std::string& name, const FormulaParameter& parameter,
                            const std::string& help, Value (*function)(const Value&, double)) {
  return {name, {{"x"}, parameter}, help, [function](const FormulaCall& c) {
            return function(c.value(0), c.number(1));
          }};
}

// Axes of an observation as axes of values: the batch has none.
std::vector<int> batch_axes(const FormulaCall& c, const Value& x) {
  const int rank = std::max(x.shape().rank() - 1, 0);
  std::vector<int> axes;
  if (!c.lists[1]) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 1);
    return axes;
  }
  for (const double number : *c.lists[1]) {
    const auto axis = static_cast<int>(number);
    if (axis < -rank || axis >= rank) {
      throw InvalidArgument(
          fmt::format("an observation of {} has no axis {}", observation_text(x), axis),
          "axes count from 0 in an observation; the batch has none");
    }
    axes.push_back(axis < 0 ? axis + rank + 1 : axis + 1);
  }
  return axes;
}

FormulaFunction reduction_function(const std::string& name, const std::string& help,
                                   Value (*function)(const Value&, const std::vector<int>&, bool)) {
  return {
      name,
      {{"x"}, {"axis", ParameterKind::axes, {}, true}, {"keep_dims", ParameterKind::flag, 0, true}},
      help + " over the observation, or over its axes",
      [function](const FormulaCall& c) {
        const Value x = c.value(0);
        const std::vector<int> axes = batch_axes(c, x);
        return function(x, axes, c.flag(2));  // over no axes: each number by itself
      }};
}

// Both arguments in one shape: a number stands for a target (or prediction) of that number.
std::pair<Value, Value> pair_of(const FormulaCall& c) {
  Value a = c.value(0), b = c.value(1);
  if (a.shape().rank() == 0 && b.shape().rank() > 0) a = ops::broadcast_to(a, b.shape());
  if (b.shape().rank() == 0 && a.shape().rank() > 0) b = ops::broadcast_to(b, a.shape());
  return {a, b};
}

FormulaFunction pair_loss(const std::string& name, const std::string& help, OfTwo function,
                          const Parameters& names = {{"prediction"}, {"target"}}) {
  return {name, names, help, [function](const FormulaCall& c) {
            const auto [a, b] = pair_of(c);
            return function(a, b);
          }};
}

FormulaFunction pair_loss_with(const std::string& name, const FormulaParameter& parameter,
                               const std::string& help,
                               Value (*function)(const Value&, const Value&, double),
                               const Parameters& names = {{"prediction"}, {"target"}}) {
  Parameters all = names;
  all.push_back(parameter);
  return {name, all, help, [function](const FormulaCall& c) {
            const auto [a, b] = pair_of(c);
            return function(a, b, c.number(2));
          }};
}

void add_elementwise(std::vector<FormulaFunction>& all) {
#define LOCKSTEP_ADD(name, help) \
  all.push_back(unary_function(#name, help, [](const Value& x) { return ops::name(x); }));
  LOCKSTEP_UNARY_OPS(LOCKSTEP_ADD)
#undef LOCKSTEP_ADD
#define LOCKSTEP_ADD(name, help)             \
  all.push_back(binary_function(#name, help, \
                                [](const Value& a, const Value& b) { return ops::name(a, b); }));
  LOCKSTEP_BINARY_OPS(LOCKSTEP_ADD)
  LOCKSTEP_ADD(greater, "1 where a > b, otherwise 0")
  LOCKSTEP_ADD(greater_equal, "1 where a >= b, otherwise 0")
  LOCKSTEP_ADD(not_equal, "1 where a and b differ, otherwise 0")
  LOCKSTEP_ADD(logical_and, "1 where a and b are not 0, otherwise 0")
  LOCKSTEP_ADD(logical_or, "1 where a or b is not 0, otherwise 0")
  LOCKSTEP_ADD(logical_xor, "1 where either a or b is not 0, otherwise 0")
#undef LOCKSTEP_ADD
  all.push_back({"where",
                 {{"condition"}, {"a"}, {"b"}},
                 "a where the condition is not 0, otherwise b",
                 [](const FormulaCall& c) {
                   std::vector<Value> values{c.value(0), c.value(1), c.value(2)};
                   align_observations(values);
                   return ops::where(values[0], values[1], values[2]);
                 }});
  all.push_back(
      {"clip",
       {{"x"}, {"low", ParameterKind::number}, {"high", ParameterKind::number}},
       "x, but at least low and at most high",
       [](const FormulaCall& c) { return ops::clip(c.value(0), c.number(1), c.number(2)); }});
}

void add_tests_of_values(std::vector<FormulaFunction>& all) {
  all.push_back(unary_function("logical_not", "1 where x is 0, otherwise 0",
                               [](const Value& x) { return ops::logical_not(x); }));
  all.push_back(unary_function("isnan", "1 where x is not a number, otherwise 0",
                               [](const Value& x) { return ops::isnan(x); }));
  all.push_back(unary_function("isfinite", "1 where x is finite, otherwise 0",
                               [](const Value& x) { return ops::isfinite(x); }));
}

void add_activations(std::vector<FormulaFunction>& all) {
  all.push_back(unary_function("relu", "max(0, x)", [](const Value& x) { return ops::relu(x); }));
  all.push_back(with_number("clipped_relu", {"ceiling", ParameterKind::number},
                            "min(max(0, x), ceiling)",
                            [](const Value& x, double v) { return ops::clipped_relu(x, v); }));
  all.push_back(with_number("leaky_relu", {"scale", ParameterKind::number, 0.01},
                            "x for x > 0, otherwise scale * x",
                            [](const Value& x, double v) { return ops::leaky_relu(x, v); }));
  all.push_back(with_number("elu", {"alpha", ParameterKind::number, 1},
                            "x for x > 0, otherwise alpha * (exp(x) - 1)",
                            [](const Value& x, double v) { return ops::elu(x, v); }));
  all.push_back(unary_function("gelu", "x * (1 + erf(x / sqrt(2))) / 2",
                               [](const Value& x) { return ops::gelu(x); }));
  all.push_back(
      unary_function("swish", "x * sigmoid(x)", [](const Value& x) { return ops::swish(x); }));
  all.push_back(unary_function("tanh", "the hyperbolic tangent",
                               [](const Value& x) { return ops::tanh(x); }));
  all.push_back(unary_function("sigmoid", "1 / (1 + exp(-x))",
                               [](const Value& x) { return ops::sigmoid(x); }));
  all.push_back(unary_function("softplus", "log(1 + exp(x))",
                               [](const Value& x) { return ops::softplus(x); }));
  all.push_back(unary_function("softmax", "exp(x) / sum(exp(x)) over the channels, the first axis",
                               [](const Value& x) { return ops::softmax(x); }));
  all.push_back(unary_function("log_softmax", "log(softmax(x)), exact also where the softmax is 0",
                               [](const Value& x) { return ops::log_softmax(x, 1); }));
}

void add_reductions(std::vector<FormulaFunction>& all) {
#define LOCKSTEP_ADD(name, help)                                                                 \
  all.push_back(                                                                                 \
      reduction_function(#name, help, [](const Value& x, const std::vector<int>& axes, bool k) { \
        return ops::name(x, axes, k);                                                            \
      }));
  LOCKSTEP_ADD(sum, "the sum")
  LOCKSTEP_ADD(mean, "the mean")
  LOCKSTEP_ADD(prod, "the product")
  LOCKSTEP_ADD(max, "the largest element")
  LOCKSTEP_ADD(min, "the smallest element")
  LOCKSTEP_ADD(var, "the variance, divided by the count,")
  LOCKSTEP_ADD(std, "the root of the variance")
  LOCKSTEP_ADD(norm, "the Euclidean norm")
  LOCKSTEP_ADD(logsumexp, "log(sum(exp(x))), without overflow,")
  LOCKSTEP_ADD(all, "1 where all elements are not 0, otherwise 0,")
  LOCKSTEP_ADD(any, "1 where any element is not 0, otherwise 0,")
#undef LOCKSTEP_ADD
}

void add_triangles(std::vector<FormulaFunction>& all) {
  const auto add = [&](const std::string& name, const std::string& help,
                       Value (*function)(const Value&, int64_t)) {
    all.push_back({name,
                   {{"x"}, {"k", ParameterKind::number, 0}},
                   help + " of the last two axes, zeros elsewhere",
                   [function](const FormulaCall& c) {
                     const Value x = c.value(0);
                     if (x.shape().rank() < 3) {
                       throw InvalidArgument("expected an observation of matrices, received " +
                                             observation_text(x));
                     }
                     return function(x, whole_number("k", c.number(1), -1e6, 1e6));
                   }});
  };
  add("tril", "the lower triangle, column - row <= k,",
      [](const Value& x, int64_t k) { return ops::tril(x, k); });
  add("triu", "the upper triangle, column - row >= k,",
      [](const Value& x, int64_t k) { return ops::triu(x, k); });
}

void add_losses(std::vector<FormulaFunction>& all) {
  for (const char* name : {"mse", "mean_squared_error"}) {
    all.push_back(
        pair_loss(name, "mean of (prediction - target) ** 2",
                  [](const Value& a, const Value& b) { return ops::mean_squared_error(a, b); }));
  }
  all.push_back(pair_loss("l1", "mean of abs(prediction - target)",
                          [](const Value& a, const Value& b) { return ops::l1(a, b); }));
  all.push_back(
      pair_loss_with("huber", {"delta", ParameterKind::number, 1},
                     "mean of d ** 2 / 2 for |d| <= delta, otherwise of delta * (|d| - delta / 2)",
                     [](const Value& a, const Value& b, double v) { return ops::huber(a, b, v); }));
  all.push_back(pair_loss_with(
      "smooth_l1", {"beta", ParameterKind::number, 1}, "huber() with delta = beta, divided by beta",
      [](const Value& a, const Value& b, double v) { return ops::smooth_l1(a, b, v); }));
  all.push_back(
      pair_loss_with("hinge", {"margin", ParameterKind::number, 1},
                     "mean of max(0, margin - target * prediction), for targets of -1 and 1",
                     [](const Value& a, const Value& b, double v) { return ops::hinge(a, b, v); }));
  all.push_back(pair_loss_with(
      "cosine_similarity", {"epsilon", ParameterKind::number, 1e-8},
      "sum(a * b) / (norm of a * norm of b), with norms of at least epsilon",
      [](const Value& a, const Value& b, double v) { return ops::cosine_similarity(a, b, v); },
      {{"a"}, {"b"}}));
  all.push_back(pair_loss(
      "binary_cross_entropy",
      "mean of -(target * log(p) + (1 - target) * log(1 - p)), with logarithms of at least -100",
      [](const Value& a, const Value& b) { return ops::binary_cross_entropy(a, b); },
      {{"probabilities"}, {"target"}}));
  all.push_back(pair_loss(
      "binary_cross_entropy_with_logits",
      "binary_cross_entropy(sigmoid(logits), target), finite for large logits",
      [](const Value& a, const Value& b) { return ops::binary_cross_entropy_with_logits(a, b); },
      {{"logits"}, {"target"}}));
  all.push_back({"triplet_margin",
                 {{"anchor"},
                  {"positive"},
                  {"negative"},
                  {"margin", ParameterKind::number, 1},
                  {"epsilon", ParameterKind::number, 1e-6}},
                 "max(0, |anchor - positive| - |anchor - negative| + margin)",
                 [](const FormulaCall& c) {
                   return ops::triplet_margin(c.value(0), c.value(1), c.value(2), c.number(3),
                                              c.number(4));
                 }});
  all.push_back(pair_loss("kl_div", "sum of target * (log(target) - log_probabilities)",
                          [](const Value& a, const Value& b) { return ops::kl_div(a, b); },
                          {{"log_probabilities"}, {"target"}}));
}

}  // namespace

Value scalar_value(double number, const Value& anchor) {
  return applied(ops::make_scalar_like(static_cast<float>(number)), {anchor});
}

int64_t whole_number(const std::string& name, double number, double least, double most) {
  if (number == std::floor(number) && number >= least && number <= most) {
    return static_cast<int64_t>(number);
  }
  throw InvalidArgument(fmt::format("{} must be a whole number from {} to {}, received {}", name,
                                    least, most, number));
}

Value FormulaCall::value(size_t i) const {
  return operands[i].number ? scalar_value(*operands[i].number, anchor) : operands[i].value;
}

std::string FormulaFunction::signature() const {
  std::string text = name + "(";
  for (const FormulaParameter& p : parameters) {
    if (&p != &parameters.front()) text += ", ";
    text += p.name;
    if (p.kind == ParameterKind::axes) text += "=all";
    if (p.kind == ParameterKind::numbers) text += "=none";
    if (p.otherwise) text += fmt::format("={}", *p.otherwise);
  }
  return text + ")";
}

const std::vector<FormulaFunction>& formula_functions() {
  static const std::vector<FormulaFunction> functions = [] {
    std::vector<FormulaFunction> all;
    add_elementwise(all);
    add_tests_of_values(all);
    add_activations(all);
    add_reductions(all);
    add_losses(all);
    add_losses_by_labels(all);
    add_triangles(all);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
  }();
  return functions;
}

const FormulaFunction* find_formula_function(const std::string& name) {
  const auto& all = formula_functions();
  const auto found =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const auto& f, const auto& wanted) { return f.name < wanted; });
  return found == all.end() || found->name != name ? nullptr : &*found;
}

namespace {

double of_numbers(const std::string& sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "/") return a / b;
  if (sign == "<") return a < b;
  if (sign == "<=") return a <= b;
  if (sign == ">") return a > b;
  if (sign == ">=") return a >= b;
  return a == b;
}

Value of_values(const std::string& sign, const Value& a, const Value& b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "/") return a / b;
  if (sign == "**") return ops::pow(a, b);
  if (sign == "<") return ops::less(a, b);
  if (sign == "<=") return ops::less_equal(a, b);
  if (sign == ">") return ops::less(b, a);
  if (sign == ">=") return ops::less_equal(b, a);
  return ops::equal(a, b);
}

}  // namespace

FormulaOperand apply_operation(const std::string& sign, const std::vector<FormulaOperand>& operands,
                               const Value& anchor) {
  const FormulaOperand& a = operands[0];
  if (operands.size() == 1) {
    return a.number ? FormulaOperand{-*a.number} : FormulaOperand{{}, ops::negate(a.value)};
  }
  const FormulaOperand& b = operands[1];
  // A power of numbers is computed by the op: the C library's differs between machines.
  if (a.number && b.number && sign != "**") {
    const double result = of_numbers(sign, *a.number, *b.number);
    if (!(std::abs(result) <= static_cast<double>(std::numeric_limits<float>::max())) ||
        (result != 0 && static_cast<float>(result) == 0)) {
      throw InvalidArgument("the result is beyond the range of f32");
    }
    return {result};
  }
  if (sign == "**" && b.number == 2.0 && !a.number) return {{}, ops::square(a.value)};
  return {{}, apply_to_two(a, b, anchor, [&](const Value& x, const Value& y) {
            return of_values(sign, x, y);
          })};
}

}  // namespace lockstep
