// Functions of formulas that take labels.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/formulas/formula_functions.h"
#include "lockstep/engine/ops/labels.h"
#include "lockstep/engine/ops/networks/classes_first.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/pointwise.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {
namespace {

using ParameterKind = FormulaParameter::Kind;

// The list at parameter i as a vector; undefined: it is left out.
Value vector_of(const FormulaCall& c, size_t i) {
  if (!c.lists[i]) return {};
  std::vector<Value> numbers;
  for (const double number : *c.lists[i]) {
    numbers.push_back(ops::expand_dims(scalar_value(number, c.anchor), 0));
  }
  return ops::concat(numbers, 0);
}

constexpr double kIgnoreIndex = kIgnoredLabel;

int64_t ignore_index_of(const FormulaCall& c, size_t i) {
  return whole_number("ignore_index", c.number(i), -1e6, 1e6);
}

// Weights that become shares by a division by their sum.
void check_shares(const FormulaCall& c, size_t i) {
  if (!c.lists[i]) return;
  double sum = 0;
  for (const double weight : *c.lists[i]) {
    if (!(weight >= 0))
      throw InvalidArgument(fmt::format("a weight is 0 or above, not {}", weight));
    sum += weight;
  }
  if (!(sum > 0)) throw InvalidArgument("one of the weights must be above 0");
}

// n x classes, of maps n x classes x space.
Value one_hot_of(const Value& labels, int64_t classes) {
  if (labels.shape().rank() <= 1) return ops::one_hot(labels, classes);
  return ops::classes_first(labels, classes, kIgnoredLabel);
}

using OfLabels = Value (*)(const Value&, const Value&);
using OfLabelsWithSettings = Value (*)(const Value&, const Value&, const Value&,
                                       const ops::CrossEntropyParams&);

FormulaFunction cross_entropy_function(const std::string& name, const std::string& scores,
                                       const std::string& help, OfLabels usual,
                                       OfLabelsWithSettings with_settings) {
  return {name,
          {{scores},
           {"labels", ParameterKind::labels_or_shares},
           {"weights", ParameterKind::numbers, {}, true},
           {"ignore_index", ParameterKind::number, kIgnoreIndex, true},
           {"label_smoothing", ParameterKind::number, 0, true}},
          help + ", times the weight of its class; 0 for ignore_index",
          [usual, with_settings](const FormulaCall& c) {
            const bool maps = c.value(0).shape().rank() > 2;
            if (!maps && !c.lists[2] && c.number(3) == kIgnoreIndex && c.number(4) == 0) {
              return usual(c.value(0), c.value(1));
            }
            return with_settings(c.value(0), c.value(1), vector_of(c, 2),
                                 {ignore_index_of(c, 3), c.number(4)});
          }};
}

}  // namespace

void add_losses_by_labels(std::vector<FormulaFunction>& all) {
  all.push_back(cross_entropy_function(
      "cross_entropy", "probabilities", "-log(probability of the label)",
      [](const Value& p, const Value& l) { return ops::cross_entropy(p, l); },
      [](const Value& p, const Value& l, const Value& w, const ops::CrossEntropyParams& params) {
        return ops::cross_entropy(p, l, w, params);
      }));
  all.push_back(cross_entropy_function(
      "softmax_cross_entropy", "logits", "cross_entropy(softmax(logits), labels), exact",
      [](const Value& x, const Value& l) { return ops::softmax_cross_entropy(x, l); },
      [](const Value& x, const Value& l, const Value& w, const ops::CrossEntropyParams& params) {
        return ops::softmax_cross_entropy(x, l, w, params);
      }));
  all.push_back({"nll",
                 {{"log_probabilities"},
                  {"labels", ParameterKind::labels},
                  {"weights", ParameterKind::numbers, {}, true},
                  {"ignore_index", ParameterKind::number, kIgnoreIndex, true}},
                 "-log_probability of the label, times the weight of its class; 0 for ignore_index",
                 [](const FormulaCall& c) {
                   return ops::nll(c.value(0), c.value(1), vector_of(c, 2), ignore_index_of(c, 3));
                 }});
  all.push_back(
      {"dice_loss",
       {{"probabilities"},
        {"labels", ParameterKind::labels},
        {"weights", ParameterKind::numbers, {}, true},
        {"smooth", ParameterKind::number, 1, true},
        {"ignore_index", ParameterKind::number, kIgnoreIndex, true}},
       "mean over the classes (by their weights) of 1 - (2 * sum(p * t) + smooth) / "
       "(sum(p) + sum(t) + smooth), with t = 1 for the class of the label and otherwise 0; "
       "without labels of ignore_index",
       [](const FormulaCall& c) {
         check_shares(c, 2);
         return ops::dice_loss(c.value(0), c.value(1), vector_of(c, 2),
                               {c.number(3), ignore_index_of(c, 4)});
       }});
  all.push_back(
      {"one_hot",
       {{"labels", ParameterKind::labels}, {"classes", ParameterKind::number}},
       "1 for the class of the label, otherwise 0; of pixels on the first axis, as scores have "
       "them, and 0 for pixels without a class",
       [](const FormulaCall& c) {
         return one_hot_of(c.value(0), whole_number("classes", c.number(1), 1, 1e6));
       }});
}

}  // namespace lockstep
