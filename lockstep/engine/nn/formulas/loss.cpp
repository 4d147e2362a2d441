#include "lockstep/engine/nn/loss.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/kernels/reductions/arg_axis.h"
#include "lockstep/engine/nn/formulas/formula_functions.h"
#include "lockstep/engine/nn/formulas/formula_parser.h"
#include "lockstep/engine/nn/formulas/formula_values.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {
namespace {

constexpr const char* output_name = "output";
constexpr const char* target_name = "target";
constexpr const char* logits_name = "logits of output";  // no expression can use it

// Losses whose names alone stand for their values of output and target: "cross_entropy +
// dice_loss".
bool is_short(const std::string& name) {
  return name == "cross_entropy" || name == "dice_loss" || name == "mean_squared_error";
}

// A loss in one word, which is a name that does not exist.
bool is_word(const std::string& loss) {
  return !loss.empty() && loss != output_name && loss != target_name && !is_short(loss) &&
         loss.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
             std::string::npos;
}

struct LossFormula {
  Formula formula;
  FormulaNames names;
};

// The formula with calls in place of short names.
FormulaNodePtr with_calls(const FormulaNodePtr& node) {
  FormulaNode made = *node;
  if (node->kind == FormulaNode::Kind::name && is_short(node->name)) {
    made.kind = FormulaNode::Kind::call;
    for (const char* name : {output_name, target_name}) {
      FormulaNode argument;
      argument.kind = FormulaNode::Kind::name;
      argument.name = name;
      argument.at = node->at;
      made.arguments.push_back({"", std::make_shared<FormulaNode>(std::move(argument)), node->at});
    }
  }
  for (FormulaArgument& argument : made.arguments) argument.value = with_calls(argument.value);
  return std::make_shared<FormulaNode>(std::move(made));
}

std::vector<std::string> names_in_one_word() {
  std::vector<std::string> names = loss_names();
  names.emplace_back("dice_loss");
  return names;
}

LossFormula parsed(const std::string& loss) {
  if (is_word(loss)) {
    const FormulaFunction* function = find_formula_function(loss);
    // `mse` is a function and another word for a loss; other functions are what they are called.
    const bool is_other_word = nearest_name(loss, names_in_one_word()) == "mean_squared_error";
    throw InvalidArgument(
        "[network] unknown loss `" + loss + "`",
        function && !is_other_word
            ? "an expression of output and target is possible: " + function->signature()
            : suggest(loss, names_in_one_word()));
  }
  LossFormula made{parse_formula(loss, "[network] loss"), {{output_name, target_name}}};
  made.formula.root = with_calls(made.formula.root);
  // Unknown names and functions are found first.
  if (takes_as_labels(made.formula, target_name)) made.names.labels = target_name;
  check_formula(made.formula, made.names);
  if (uses_of_name(made.formula, output_name) == 0) {
    refuse_formula(made.formula, {0, loss.size()}, "the loss does not depend on `output`");
  }
  return made;
}

// The input of the softmax that gives the prediction, or -1.
int logits_of(const Graph& graph, int prediction) {
  const Graph::Value& value = graph.values()[static_cast<size_t>(prediction)];
  if (value.source != Graph::Source::computed) return -1;
  const Graph::Node& node = graph.nodes()[static_cast<size_t>(value.slot)];
  return node.op->type() == "softmax" ? node.inputs[0] : -1;
}

// Whether a cross-entropy has settings, so that it is not fused with the softmax.
bool has_settings(const FormulaNode& node) {
  if (node.kind == FormulaNode::Kind::call && node.name == "cross_entropy" &&
      node.arguments.size() > 2) {
    return true;
  }
  return std::any_of(node.arguments.begin(), node.arguments.end(),
                     [](const FormulaArgument& argument) { return has_settings(*argument.value); });
}

// cross_entropy(output, ...) as softmax_cross_entropy(logits, ...).
FormulaNodePtr with_logits(const FormulaNodePtr& node) {
  FormulaNode made = *node;
  const bool crosses = node->kind == FormulaNode::Kind::call && node->name == "cross_entropy";
  for (FormulaArgument& argument : made.arguments) {
    const bool probabilities =
        crosses && (argument.name.empty() ? &argument == &made.arguments.front()
                                          : argument.name == "probabilities");
    if (!probabilities || argument.value->kind != FormulaNode::Kind::name ||
        argument.value->name != output_name) {
      argument.value = with_logits(argument.value);
      continue;
    }
    FormulaNode logits = *argument.value;
    logits.name = logits_name;
    argument.value = std::make_shared<FormulaNode>(std::move(logits));
    if (!argument.name.empty()) argument.name = "logits";
    made.name = "softmax_cross_entropy";
  }
  return std::make_shared<FormulaNode>(std::move(made));
}

}  // namespace

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names{"cross_entropy", "mean_squared_error"};
  return names;
}

void check_loss(const std::string& loss) {
  if (is_expression(loss)) parsed(loss);
}

bool is_expression(const std::string& loss) {
  return std::find(loss_names().begin(), loss_names().end(), loss) == loss_names().end();
}

bool takes_labels(const std::string& loss) {
  return is_expression(loss) ? !parsed(loss).names.labels.empty() : loss == "cross_entropy";
}

namespace {

// Targets of predictions of `shape` as the network learns them.
Value normalized(const Value& target, const Shape& shape, const TargetScaling& scaling,
                 GraphBuilder& builder) {
  if (scaling.normalized < 0) return target;
  return (target - ops::by_channel(Value(&builder, scaling.offset), shape)) /
         ops::by_channel(Value(&builder, scaling.scale), shape);
}

// The loss of predictions that are not sequences, and a graph input for targets of `target_shape`
// (`label_shape`: for labels), which is seen as one for each prediction.
// `shared`: other losses have the same prediction.
LossValues add_loss_of_rows(Graph& graph, const std::string& loss, int prediction,
                            const Shape& target_shape, const Shape& label_shape,
                            const TargetScaling& scaling, bool shared = false) {
  const Shape shape = graph.shape(prediction);
  GraphBuilder builder(graph, "loss");
  const Value output(&builder, prediction);
  const auto add_target = [&](bool labels) {
    const int input = labels ? graph.add_input(label_shape, DType::i32)
                             : graph.add_input(target_shape, DType::f32);
    const Shape wanted = labels ? Shape{shape[0]} : shape;
    const Value value(&builder, input);
    const Value target = graph.shape(input) == wanted ? value : ops::reshaped(value, wanted);
    return std::pair{input, labels ? target : normalized(target, shape, scaling, builder)};
  };
  if (loss == "cross_entropy" && shared) {
    return add_loss_of_rows(graph, "cross_entropy(output, target)", prediction, target_shape,
                            label_shape, scaling, shared);
  }
  if (loss == "cross_entropy") {
    const auto [input, target] = add_target(true);
    return {input, ops::cross_entropy(output, target).number()};
  }
  if (loss == "mean_squared_error") {
    const auto [input, target] = add_target(false);
    return {input, ops::mean_squared_error(output, target).number()};
  }
  LossFormula made = parsed(loss);
  const auto [input, target] = add_target(!made.names.labels.empty());
  std::vector<Value> values{output, target};
  // A softmax that only the cross-entropy reads is fused with it later. Where more reads it, the
  // cross-entropy of a probability that has become 0 would be infinite.
  const int logits = logits_of(graph, prediction);
  if (logits >= 0 &&
      (shared || uses_of_name(made.formula, output_name) > 1 || has_settings(*made.formula.root))) {
    made.formula.root = with_logits(made.formula.root);
    made.names.values.emplace_back(logits_name);
    values.emplace_back(&builder, logits);
  }
  const Value value = formula_value(made.formula, made.names, values);
  if (value.shape().rank() != 1) {
    refuse_formula(made.formula, {0, loss.size()},
                   "a loss is one number for each observation, but the expression gives an "
                   "array of " +
                       value.shape().without_batch().to_string(),
                   "average them: mean(...)");
  }
  return {input, value.number()};
}

// Cross-entropy of each position of maps, n x space; 0 for ignored ones. `logits`: undefined if
// they are not known.
Value cross_entropy_of_maps(const Value& output, const Value& logits, const Value& target) {
  constexpr ops::CrossEntropyParams params;
  static_assert(params.ignore_index == kIgnoredLabel);
  return logits.defined() ? ops::softmax_cross_entropy(logits, target, Value(), params)
                          : ops::cross_entropy(output, target, Value(), params);
}

// How many labels count in each observation: n.
Value counted_labels(const Value& target) {
  const Value counts = ops::not_equal(ops::astype(target, DType::f32), kIgnoredLabel);
  std::vector<int> space(static_cast<size_t>(target.shape().rank() - 1));
  std::iota(space.begin(), space.end(), 1);
  return ops::sum(counts, space);
}

// An expression's value for each label, or for each observation: n, which is then that of all its
// labels that count.
Value expression_of_maps(const std::string& loss, const Value& output, const Value& logits,
                         const Value& target) {
  LossFormula made = parsed(loss);
  std::vector<Value> values{output, target};
  if (logits.defined()) {
    made.formula.root = with_logits(made.formula.root);
    made.names.values.emplace_back(logits_name);
    values.push_back(logits);
  }
  const Value value = formula_value(made.formula, made.names, values);
  if (value.shape() == target.shape() || value.shape().rank() == 1) return value;
  refuse_formula(made.formula, {0, loss.size()},
                 "a loss of labels by pixel is one number for each label, of " +
                     target.shape().without_batch().to_string() +
                     " for an observation, or one for the observation, but the expression gives " +
                     value.shape().without_batch().to_string(),
                 "the mean over the pixels is taken later; mean(...) gives one number");
}

// The loss of maps, n x classes x space, that have a label for each position.
LossValues add_loss_of_maps(Graph& graph, const std::string& loss, int prediction) {
  const Shape shape = graph.shape(prediction);
  GraphBuilder builder(graph, "loss");
  const int number = graph.add_input(kernels::without_axis(shape, 1), DType::i32);
  const Value output(&builder, prediction), target(&builder, number);
  const int known = logits_of(graph, prediction);
  const Value logits = known < 0 ? Value() : Value(&builder, known);
  Value losses = loss == "cross_entropy" ? cross_entropy_of_maps(output, logits, target)
                                         : expression_of_maps(loss, output, logits, target);
  if (losses.shape().rank() == 1) {
    const Value count = counted_labels(target);
    return {number, (ops::where(count, losses, 0) * count).number()};
  }
  if (loss != "cross_entropy") {
    const Value ignored = ops::equal(ops::astype(target, DType::f32), kIgnoredLabel);
    losses = ops::where(ignored, 0, losses);
  }
  std::vector<int> space(losses.shape().rank() - 1);
  std::iota(space.begin(), space.end(), 1);
  return {number, ops::sum(losses, space).number()};
}

// Of the losses of all steps of predictions, n x steps x ..., those that are valid.
Value sum_of_steps(const Value& losses, const Value& lengths, const Shape& predictions) {
  const int64_t n = predictions[0], steps = predictions[1];
  const Value by_step = ops::reshaped(losses, {n, steps});
  return ops::sum(ops::where(ops::step_mask(lengths, steps), by_step, 0), {1});
}

LossValues add_loss_of(Graph& graph, const std::string& loss, const LoweredValue& prediction,
                       const TargetScaling& scaling) {
  const Shape shape = graph.shape(prediction.value);
  if (prediction.lengths < 0 && shape.rank() > 2 && takes_labels(loss)) {
    return add_loss_of_maps(graph, loss, prediction.value);
  }
  if (prediction.lengths < 0) {
    return add_loss_of_rows(graph, loss, prediction.value, shape, {shape[0]}, scaling);
  }
  // Each step is an observation of the loss; those after the ends do not count.
  const int64_t n = shape[0], steps = shape[1];
  GraphBuilder builder(graph, "loss");
  const Value output(&builder, prediction.value), lengths(&builder, prediction.lengths);
  const Shape together = steps_together(shape);
  int rows = reshaped_from(graph, prediction.value, together);
  if (rows < 0) rows = ops::reshaped(output, together).number();
  LossValues made = add_loss_of_rows(graph, loss, rows, shape, {n, steps}, scaling);
  made.loss = sum_of_steps(Value(&builder, made.loss), lengths, shape).number();
  return made;
}

// Of a vector of scores, or of numbers, for each observation.
Value loss_of_part(const LoweredOutput& part, const Value& output, const Value& target) {
  if (part.loss == "cross_entropy") return ops::softmax_cross_entropy(output, target);
  if (part.loss == "mean_squared_error") return ops::mean_squared_error(output, target);
  const Formula formula = parse_formula(part.loss, "[network] loss");
  const FormulaNames names{{output_name, target_name}};
  check_formula(formula, names);
  const Value value = formula_value(formula, names, {output, target});
  if (value.shape().rank() == 1) return value;
  refuse_formula(formula, {0, part.loss.size()}, "a loss is one number for each observation",
                 "average them: mean(...)");
}

LossValues add_losses_of_parts(LoweredNetwork& network) {
  Graph& graph = network.graph;
  const int lengths = network.output_lengths.at(0);
  const Shape given = graph.shape(network.outputs[0]);
  // The steps of sequences are rows.
  const Shape whole = lengths < 0 ? given : steps_together(given);
  const int input = graph.add_input(given, DType::f32);
  GraphBuilder builder(graph, "loss");
  Value targets(&builder, input);
  if (lengths >= 0) targets = ops::reshaped(targets, whole);
  targets = normalized(targets, whole, network.output_scaling.at(0), builder);
  Value sum;
  int64_t first = 0;
  for (const LoweredOutput& part : network.parts) {
    Value output(&builder, part.value);
    const int64_t count = output.shape().elements() / whole[0];
    if (output.shape().rank() != 2) output = ops::reshaped(output, {whole[0], count});
    const Value target = ops::slice(targets, {{}, {first, first + count}});
    const Value loss = loss_of_part(part, output, target) * part.weight;
    sum = sum.defined() ? sum + loss : loss;
    first += count;
  }
  if (lengths >= 0) sum = sum_of_steps(sum, Value(&builder, lengths), given);
  return {input, sum.number()};
}

}  // namespace

MixedLossValues add_mixed_loss(Graph& graph, const std::string& loss, int prediction) {
  if (!takes_labels(loss)) {
    throw InvalidArgument("[loss] only losses of class labels can be mixed, not " + loss);
  }
  const Shape shape = graph.shape(prediction), labels{shape[0]};
  GraphBuilder builder(graph, "loss");
  MixedLossValues mixed{};
  const auto weighted = [&](int& target, int& factor) {
    const LossValues made = add_loss_of_rows(graph, loss, prediction, shape, labels, {}, true);
    target = made.target;
    return Value(&builder, made.loss) * Value(&builder, factor);
  };
  mixed.factor = graph.add_input(labels, DType::f32);
  mixed.other_factor = graph.add_input(labels, DType::f32);
  const Value other = weighted(mixed.other, mixed.other_factor);
  mixed.loss = (weighted(mixed.target, mixed.factor) + other).number();
  return mixed;
}

LossValues add_loss(Graph& graph, const std::string& loss, const LoweredValue& prediction) {
  return add_loss_of(graph, loss, prediction, {});
}

LossValues add_loss(LoweredNetwork& network, const std::string& loss) {
  if (!network.parts.empty()) {
    if (!takes_labels(loss)) return add_losses_of_parts(network);
    throw InvalidArgument(
        "[network] the losses are those of the layer `outputs`, whose targets are "
        "numbers, but the network has the loss " +
            loss,
        "set the loss of the network to mean_squared_error");
  }
  const TargetScaling& scaling = network.output_scaling.at(0);
  LoweredValue prediction{network.outputs.at(0), network.output_lengths.at(0)};
  if (scaling.normalized >= 0) {
    prediction.value = scaling.normalized;
    if (takes_labels(loss)) {
      throw InvalidArgument(
          "[network] denormalization scales numbers, but the loss takes labels: " + loss,
          "leave the layer out, or set a loss of numbers: mean_squared_error");
    }
  }
  return add_loss_of(network.graph, loss, prediction, scaling);
}

}  // namespace lockstep
