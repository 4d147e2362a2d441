// Expressions of losses and layers in job files and models.
#include "lockstep/base/error.h"
#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/nn/formulas/formula_parser.h"
#include "lockstep/engine/nn/formulas/formula_values.h"
#include "lockstep/engine/nn/loss.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

// Printed and parsed again, the tree is the same.
void check_printing(const std::string& text) {
  const Formula formula = parse_formula(text, "[fuzz] formula");
  const std::string printed = formula_text(*formula.root);
  constexpr size_t longest = 2000;  // spaces and parentheses may make it longer
  if (printed.size() > longest) return;
  if (!same_formula(*parse_formula(printed, "[fuzz] printed").root, *formula.root)) {
    throw InternalError("[fuzz] read back otherwise: " + printed);
  }
}

}  // namespace

// As a layer of two inputs, or else as a loss.
void parse(std::span<const std::byte> bytes) {
  const std::string text = text_of(bytes);
  check_printing(text);
  try {
    const Formula formula = parse_formula(text, "[function] expression");
    Graph graph;
    GraphBuilder builder(graph, "function");
    const Value x1(&builder, graph.add_input({4, 3, 2}, DType::f32));
    const Value x2(&builder, graph.add_input({4, 2}, DType::f32));
    formula_value(formula, {{"x1", "x2"}}, {x1, x2});
    return;
  } catch (const InvalidArgument&) {
  }
  Graph graph;
  add_loss(graph, text, graph.add_input({4, 3}, DType::f32));
}

std::vector<Bytes> seeds() {
  return {bytes_of("huber(output, target, delta=0.1) + 0.01 * mean(abs(output))"),
          bytes_of("cross_entropy(softmax(output), target) - 1e-3 * sum(one_hot(target, 3) ** 2)"),
          bytes_of("x1 * sigmoid(1.7 * x1) + where(x2 <= -.5, 2 ** -x2, clip(x2, -1, high=1/3))"),
          bytes_of("max(x1, axis=[0, -1], keep_dims=1) - ((x2 > 0) == (x2 >= 1))"),
          bytes_of(std::string(90, '(') + "-x1" + std::string(90, ')'))};
}

}  // namespace lockstep::fuzz
