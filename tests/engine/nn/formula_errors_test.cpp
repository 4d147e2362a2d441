// What expressions of losses and layers are refused, in exact words.
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/formulas/formula_parser.h"
#include "lockstep/engine/nn/formulas/formula_values.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep::formula_errors {
namespace {

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& e) {
    return std::string(e.what()) + (e.hint().empty() ? "" : "\nhint: " + e.hint());
  }
  return "not refused";
}

std::string refused(const std::string& text) {
  return refusal_of([&] { check_formula(parse_formula(text, "[f] e"), {{"output", "target"}}); });
}

TEST(FormulaErrors, ShowThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "[f] e, column 1: the expression is empty\n    \n    ^"},
      {"hubber(output, target)",
       "[f] e, column 1: unknown function `hubber`\n"
       "    hubber(output, target)\n"
       "    ^~~~~~\n"
       "hint: did you mean `huber`?"},
      {"mean(outptu - target)",
       "[f] e, column 6: unknown name `outptu`\n"
       "    mean(outptu - target)\n"
       "         ^~~~~~\n"
       "hint: did you mean `output`?"},
      {"mean + output",
       "[f] e, column 1: unknown name `mean`\n"
       "    mean + output\n"
       "    ^~~~\n"
       "hint: the function is mean(x, axis=all, keep_dims=0)"},
      {"huber(output, target, dleta=2)",
       "[f] e, column 23: huber() has no argument `dleta`\n"
       "    huber(output, target, dleta=2)\n"
       "                          ^~~~~~~\n"
       "hint: did you mean `delta`?"},
      {"huber(output)",
       "[f] e, column 1: huber() needs the argument `target`\n"
       "    huber(output)\n"
       "    ^~~~~~~~~~~~~\n"
       "hint: it is huber(prediction, target, delta=1)"},
      {"huber(output, target, 1, 2)",
       "[f] e, column 26: huber() has 3 arguments by position\n"
       "    huber(output, target, 1, 2)\n"
       "                             ^\n"
       "hint: it is huber(prediction, target, delta=1)"},
      {"max(output, 0)",
       "[f] e, column 13: max() has one argument by position, and `axis` by name\n"
       "    max(output, 0)\n"
       "                ^\n"
       "hint: it is max(x, axis=all, keep_dims=0); of two values maximum(a, b)"},
      {"huber(output, target, delta=1, delta=2)",
       "[f] e, column 32: huber() has the argument `delta` twice\n"
       "    huber(output, target, delta=1, delta=2)\n"
       "                                   ^~~~~~~"},
      {"huber(output, target=target, 1)",
       "[f] e, column 30: an argument by position after one by name\n"
       "    huber(output, target=target, 1)\n"
       "                                 ^"},
      {"huber(output, target, delta=output)",
       "[f] e, column 29: expected a number\n"
       "    huber(output, target, delta=output)\n"
       "                                ^~~~~~\n"
       "hint: numbers and + - * / are possible here"},
      {"sum(output, keep_dims=2)",
       "[f] e, column 23: expected 0 or 1, received 2\n"
       "    sum(output, keep_dims=2)\n"
       "                          ^"},
      {"sum(output, axis=0.5)",
       "[f] e, column 18: an axis is a whole number, received 0.5\n"
       "    sum(output, axis=0.5)\n"
       "                     ^~~"},
      {"exp([1, 2])",
       "[f] e, column 5: a list is possible only for axis and weights\n"
       "    exp([1, 2])\n"
       "        ^~~~~~"},
      {"one_hot(output, 3)",
       "[f] e, column 9: expected labels\n"
       "    one_hot(output, 3)\n"
       "            ^~~~~~\n"
       "hint: only losses of classifiers have labels"},
      {"info_nce(output, target)",
       "[f] e, column 1: `info_nce` couples observations, but an expression is about one\n"
       "    info_nce(output, target)\n"
       "    ^~~~~~~~~~~~~~~~~~~~~~~~\n"
       "hint: in C++ a loss of your own takes all observations if the mini-batch is one shard: "
       "sharded_value_and_gradient()"},
      {"cross_entropy(output, target, 0.1)",
       "[f] e, column 31: cross_entropy() has 2 arguments by position, and `weights` by name\n"
       "    cross_entropy(output, target, 0.1)\n"
       "                                  ^~~\n"
       "hint: it is cross_entropy(probabilities, labels, weights=none, ignore_index=-100, "
       "label_smoothing=0)"},
      {"output +",
       "[f] e, column 9: expected a number, a name or `(`, received the end\n"
       "    output +\n"
       "            ^"},
      {"(output",
       "[f] e, column 8: expected `)`, received the end\n"
       "    (output\n"
       "           ^"},
      {"output)",
       "[f] e, column 7: expected an operator or the end of the expression, received `)`\n"
       "    output)\n"
       "          ^"},
      {"2output",
       "[f] e, column 2: expected an operator or the end of the expression, received `output`\n"
       "    2output\n"
       "     ^~~~~~"},
      {"exp(output target)",
       "[f] e, column 12: expected `,` or `)`, received `target`\n"
       "    exp(output target)\n"
       "               ^~~~~~"},
      {"exp(,)",
       "[f] e, column 5: expected a number, a name or `(`, received `,`\n"
       "    exp(,)\n"
       "        ^"},
      {"output ^ 2",
       "[f] e, column 8: there is no `^`\n"
       "    output ^ 2\n"
       "           ^\n"
       "hint: a power is written a ** b"},
      {"output != 2",
       "[f] e, column 8: there is no `!=`\n"
       "    output != 2\n"
       "           ^~\n"
       "hint: write 1 - (a == b)"},
      {"0 < output < 1",
       "[f] e, column 12: comparisons cannot be chained\n"
       "    0 < output < 1\n"
       "               ^\n"
       "hint: multiply them: (a < b) * (b < c)"},
      {"output = 1",
       "[f] e, column 8: expected an operator or the end of the expression, received `=`\n"
       "    output = 1\n"
       "           ^"},
      {"1e39",
       "[f] e, column 1: the number is beyond the range of f32\n"
       "    1e39\n"
       "    ^~~~"},
      {"output / 1e-50",
       "[f] e, column 10: the number is beyond the range of f32\n"
       "    output / 1e-50\n"
       "             ^~~~~"},
      {"output\n  + outptu",
       "[f] e, line 2, column 5: unknown name `outptu`\n"
       "      + outptu\n"
       "        ^~~~~~\n"
       "hint: did you mean `output`?"},
      {"h\u00fcber(output)",
       "[f] e, column 2: expected an operator or the end of the expression, received `\u00fc`\n"
       "    h\u00fcber(output)\n"
       "     ^"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(refused(text), expected);
  EXPECT_EQ(refused(std::string("1 \0 2", 5)),
            "[f] e, column 3: expected an operator or the end of the expression, received `\\x00`\n"
            "    1 \\x00 2\n"
            "      ^~~~");
}

TEST(FormulaErrors, LongAndDeepTextsAreBounded) {
  const std::string open(1000, '('), close(1000, ')');
  EXPECT_NE(refused(open + "output" + close).find("more than"), std::string::npos);
  EXPECT_EQ(refused(open.substr(0, 99) + "output" + close.substr(0, 99)), "not refused");
  EXPECT_NE(refused(open.substr(0, 101) + "output" + close.substr(0, 101))
                .find("the expression is nested more than 100 times"),
            std::string::npos);
  EXPECT_NE(refused(std::string(500, '-') + "output").find("nested more than 100 times"),
            std::string::npos);
  EXPECT_NE(refused("output + " + std::string(3000, ' ') + "1")
                .find("the expression has more than 2000 characters"),
            std::string::npos);
  std::string sum = "output";
  while (sum.size() < 1990) sum += "+output";
  EXPECT_EQ(refused(sum), "not refused");
  // A long line is cut around the place.
  EXPECT_EQ(refused(sum.substr(0, 699) + "+ outptu" + sum.substr(699, 700)),
            "[f] e, column 702: unknown name `outptu`\n"
            "    ...put+output+output+output+output+output+ "
            "outptu+output+output+output+output+outpu...\n" +
                std::string(4 + 43, ' ') + "^~~~~~\nhint: did you mean `output`?");
}

std::string problem_of(const std::string& expression, int64_t features = 3) {
  Network network;
  network.add(feature_input({.features = features, .normalization = "none"}), "in");
  network.add(function_layer({.expression = expression}), "f");
  return refusal_of([&] { network.check(); });
}

TEST(FormulaErrors, OfLayersNameTheLayerAndItsInput) {
  EXPECT_EQ(problem_of("rellu(x)"),
            "[network] 1 problem:\n"
            "  f: [function] expression, column 1: unknown function `rellu`; did you mean `relu`? "
            "(layer's input: 3)\n"
            "    rellu(x)\n"
            "    ^~~~~");
  EXPECT_EQ(
      problem_of("x + x1"),
      "[network] 1 problem:\n"
      "  f: [function] expression, column 5: unknown name `x1`; known names: x (layer's input: "
      "3)\n"
      "    x + x1\n"
      "        ^~");
  EXPECT_EQ(problem_of("1 + 2"),
            "[network] 1 problem:\n"
            "  f: [function] expression, column 1: the expression has the same value for all "
            "observations; use one of `x` (layer's input: 3)\n"
            "    1 + 2\n"
            "    ^~~~~");
  EXPECT_EQ(problem_of("mean(x, axis=1)"),
            "[network] 1 problem:\n"
            "  f: [function] expression, column 1: an observation of 3 has no axis 1; axes count "
            "from 0 in an observation; the batch has none (layer's input: 3)\n"
            "    mean(x, axis=1)\n"
            "    ^~~~~~~~~~~~~~~");
  EXPECT_NE(problem_of("").find("[function] expression, column 1: the expression is empty"),
            std::string::npos);
  EXPECT_NE(problem_of("1 / 0 * x").find("column 3: the result is beyond the range of f32"),
            std::string::npos);
  EXPECT_NE(problem_of("huber(x, 1, delta=0)").find("[huber] delta must be above 0, received 0"),
            std::string::npos);

  Network two;
  two.add(feature_input({.features = 3, .normalization = "none"}), "a");
  two.add(feature_input({.features = 4, .normalization = "none"}), "b");
  two.add(function_layer({.expression = "x1 + x2"}), "f", {"a", "b"});
  EXPECT_EQ(
      refusal_of([&] { two.check(); }),
      "[network] 1 problem:\n"
      "  f: [function] expression, column 4: observations cannot be broadcast, received 3 and "
      "4; aligned at the last axis, axes must be equal or 1 (layer's input: 3, 4)\n"
      "    x1 + x2\n"
      "       ^");
  Network unused;
  unused.add(feature_input({.features = 3, .normalization = "none"}), "a");
  unused.add(function_layer({.expression = "x1 * 2"}), "f", {"a", "a"});
  EXPECT_NE(refusal_of([&] { unused.check(); }).find("the input `x2` is not used"),
            std::string::npos);
}

std::string refused_loss(const std::string& loss) {
  return refusal_of([&] { Network().set_loss(loss); });
}

TEST(FormulaErrors, OfLosses) {
  EXPECT_EQ(refused_loss("crossentropy"),
            "[network] unknown loss `crossentropy`\nhint: did you mean `cross_entropy`?");
  EXPECT_EQ(refused_loss("huber"),
            "[network] unknown loss `huber`\nhint: an expression of output and target is possible: "
            "huber(prediction, target, delta=1)");
  EXPECT_TRUE(refused_loss("binary_cross_entropy")
                  .ends_with("is possible: binary_cross_entropy(probabilities, target)"));
  EXPECT_EQ(refused_loss("mse"),
            "[network] unknown loss `mse`\nhint: did you mean `mean_squared_error`?");
  EXPECT_EQ(refused_loss("cross-entropy"),
            "[network] unknown loss `cross-entropy`\nhint: did you mean `cross_entropy`?");
  EXPECT_EQ(refused_loss("mean(square(target))"),
            "[network] loss, column 1: the loss does not depend on `output`\n"
            "    mean(square(target))\n"
            "    ^~~~~~~~~~~~~~~~~~~~");
  EXPECT_EQ(refused_loss("cross_entropy(output, target) + mean(output * target)"),
            "[network] loss, column 47: `target` is labels here, as a function takes it for its "
            "labels\n"
            "    cross_entropy(output, target) + mean(output * target)\n"
            "                                                  ^~~~~~\n"
            "hint: one_hot(target, classes) gives numbers");
  EXPECT_EQ(refused_loss("mean(output - one_hot(output, 10))"),
            "[network] loss, column 23: expected labels\n"
            "    mean(output - one_hot(output, 10))\n"
            "                          ^~~~~~\n"
            "hint: only losses of classifiers have labels");
  EXPECT_EQ(refused_loss("huber(output, target) + 0.1 * l1(output, 0)"), "not refused");
  EXPECT_TRUE(takes_labels("cross_entropy"));
  EXPECT_FALSE(takes_labels("mean_squared_error"));
  EXPECT_TRUE(takes_labels("mean(square(output - one_hot(target, 10)))"));
  EXPECT_TRUE(takes_labels("softmax_cross_entropy(output, labels=target)"));
  EXPECT_FALSE(takes_labels("cross_entropy(output, 0.9 * target + 0.01)"));
  EXPECT_FALSE(takes_labels("mse(output, target)"));

  Graph graph;
  const int output = graph.add_input({4, 3, 2}, DType::f32);
  EXPECT_EQ(refusal_of([&] { add_loss(graph, "square(output - target)", output); }),
            "[network] loss, column 1: a loss is one number for each observation, but the "
            "expression gives an array of 3x2\n"
            "    square(output - target)\n"
            "    ^~~~~~~~~~~~~~~~~~~~~~~\n"
            "hint: average them: mean(...)");
}

}  // namespace
}  // namespace lockstep::formula_errors
