// Expressions of losses and layers: their trees, and their values beside C++ in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "lockstep/engine/nn/formulas/formula_functions.h"
#include "lockstep/engine/nn/formulas/formula_parser.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/plan/plan.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::formulas {
namespace {

using Kind = FormulaNode::Kind;
using optest::random_array;
using optest::tensor_of;

// ---- Trees ----

class RandomTrees {
 public:
  explicit RandomTrees(uint64_t seed) : random_(seed) {}

  FormulaNodePtr tree(int depth) {
    const int kind = depth == 0 ? below(2) : below(7);
    FormulaNode node;
    if (kind == 0) {
      node.kind = Kind::number;
      node.number = number();
    } else if (kind == 1) {
      node.kind = Kind::name;
      node.name = pick({"x", "y", "output", "e1", "_a9"});
    } else if (kind == 2) {
      node.kind = Kind::operation;
      node.name = "-";
      node.arguments.push_back({"", tree(depth - 1)});
    } else if (kind < 6) {
      node.kind = Kind::operation;
      node.name = pick({"+", "-", "*", "/", "**", "<", "<=", ">", ">=", "=="});
      node.arguments.push_back({"", tree(depth - 1)});
      node.arguments.push_back({"", tree(depth - 1)});
    } else {
      node.kind = Kind::call;
      node.name = pick({"exp", "huber", "where", "unknown"});
      const int by_position = below(3), by_name = below(3);
      for (int i = 0; i < by_position; ++i) node.arguments.push_back({"", argument(depth)});
      for (int i = 0; i < by_name; ++i) {
        node.arguments.push_back({pick({"axis", "delta"}), argument(depth)});
      }
    }
    return std::make_shared<FormulaNode>(std::move(node));
  }

 private:
  FormulaNodePtr argument(int depth) {
    if (below(5) > 0) return tree(depth - 1);
    FormulaNode list{.kind = Kind::list};
    for (int i = 0; i < 1 + below(3); ++i) list.arguments.push_back({"", tree(depth - 1)});
    return std::make_shared<FormulaNode>(std::move(list));
  }
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  std::string pick(const std::vector<std::string>& from) {
    return from[static_cast<size_t>(below(static_cast<int>(from.size())))];
  }
  // Also tiny, large and long numbers.
  double number() {
    if (below(2) == 0) return below(100);
    const double exponent = below(70) - 32;
    return std::min(std::ldexp(static_cast<double>(random_()), -64) * std::pow(10, exponent), 3e38);
  }
  std::mt19937_64 random_;
};

TEST(FormulaTrees, PrintedAndParsedAgainAreTheSame) {
  int parsed = 0;
  RandomTrees random(1);
  for (int round = 0; round < 20'000; ++round) {
    const FormulaNodePtr tree = random.tree(round % 6);
    const std::string text = formula_text(*tree);
    if (text.size() > 2000) continue;
    const Formula again = parse_formula(text, "[test] f");
    ASSERT_TRUE(same_formula(*again.root, *tree)) << text << "\n" << formula_text(*again.root);
    ++parsed;
  }
  EXPECT_GT(parsed, 19'000);
}

TEST(FormulaTrees, BindAsInPython) {
  const std::pair<const char*, const char*> same[] = {{"a + b * c ** d", "a + (b * (c ** d))"},
                                                      {"-a ** b", "-(a ** b)"},
                                                      {"a ** -b ** c", "a ** (-(b ** c))"},
                                                      {"a ** b ** c", "a ** (b ** c)"},
                                                      {"a - b - c", "(a - b) - c"},
                                                      {"a / b * c", "(a / b) * c"},
                                                      {"-a * b", "(-a) * b"},
                                                      {"a * -b", "a * (-b)"},
                                                      {"a + b < c * d", "(a + b) < (c * d)"},
                                                      {"+a", "a"},
                                                      {"--a", "-(-a)"},
                                                      {" f(\n a,\tb = 1 )\r\n", "f(a,b=1)"},
                                                      {"2.5e-1", "0.25"},
                                                      {"1.", "1"},
                                                      {".5", "0.5"},
                                                      {"1E+3", "1000"}};
  for (const auto& [text, other] : same) {
    EXPECT_TRUE(same_formula(*parse_formula(text, "").root, *parse_formula(other, "").root))
        << text << ": " << formula_text(*parse_formula(text, "").root);
  }
  EXPECT_FALSE(same_formula(*parse_formula("a - b", "").root, *parse_formula("b - a", "").root));
  EXPECT_FALSE(
      same_formula(*parse_formula("a - (b - c)", "").root, *parse_formula("a - b - c", "").root));
}

// ---- Values ----

// The results of a function layer on observations.
std::vector<float> results_of(const std::string& expression, const std::vector<Tensor>& inputs) {
  Network network;
  std::vector<std::string> names;
  for (const Tensor& input : inputs) {
    names.push_back("in" + std::to_string(names.size()));
    const Shape shape = input.shape().without_batch();
    if (shape.rank() == 1) {
      network.add(feature_input({.features = shape[0], .normalization = "none"}), names.back());
    } else {
      network.add(image_input({.height = shape[1],
                               .width = shape[2],
                               .channels = shape[0],
                               .normalization = "none"}),
                  names.back());
    }
  }
  network.add(function_layer({.expression = expression}), "f", names);
  network.initialize(1);
  return network.forward(inputs).to_vector();
}

TEST(FormulaValues, AreThoseOfCInDoublePrecision) {
  using OfOne = double (*)(double);
  const std::pair<const char*, OfOne> cases[] = {
      {"x * sigmoid(1.7 * x)", [](double x) { return x / (1 + std::exp(-1.7 * x)); }},
      {"-x ** 2 + 2 ** x", [](double x) { return -x * x + std::exp2(x); }},
      {"(x > 0.25) * 3 + (x <= 0.25) * -x", [](double x) { return x > 0.25 ? 3 : -x; }},
      {"(x >= 0.25) - (x < 0.25)", [](double x) { return x >= 0.25 ? 1.0 : -1.0; }},
      {"x == x", [](double) { return 1.0; }},
      {"where(x < 0, 1, x)", [](double x) { return x < 0 ? 1 : x; }},
      {"where(x < 0, exp(x), -1)", [](double x) { return x < 0 ? std::exp(x) : -1; }},
      {"clip(x, -1/4, high=0.5)", [](double x) { return std::clamp(x, -0.25, 0.5); }},
      {"maximum(0.1, x) - minimum(x, 0.1)", [](double x) { return std::abs(x - 0.1); }},
      {"x / sqrt(2)", [](double x) { return x / std::sqrt(2); }},
      {"1 / (1 + 2) + x * 0", [](double) { return 1.0 / 3; }},
      {"3 - x", [](double x) { return 3 - x; }},
      {"1 / (2 + x)", [](double x) { return 1 / (2 + x); }},
      {"leaky_relu(x, scale=0.2)", [](double x) { return x > 0 ? x : 0.2 * x; }},
      {"elu(x)", [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"clipped_relu(x, 0.5)", [](double x) { return std::clamp(x, 0.0, 0.5); }},
      {"gelu(x)", [](double x) { return x * std::erfc(-x / std::sqrt(2)) / 2; }},
      {"add(x, 1) * subtract(2, x)", [](double x) { return (x + 1) * (2 - x); }},
      {"pow(x + 2, 1.5)", [](double x) { return std::pow(x + 2, 1.5); }},
      {"negate(reciprocal(x + 3))", [](double x) { return -1 / (x + 3); }}};
  const optest::Array x = random_array({5, 7}, 3);
  for (const auto& [text, function] : cases) {
    const std::vector<float> y = results_of(text, {tensor_of(x)});
    ASSERT_EQ(y.size(), 35u);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(y[i]), function(x.values[i]), 1e-6) << text;
    }
  }
}

// Each function of one and two arguments is the op of its name, bit by bit.
TEST(FormulaValues, FunctionsAreTheOpsOfTheirNames) {
  const Tensor x = tensor_of(random_array({3, 5}, 1, 0.1, 2));
  const Tensor y = tensor_of(random_array({3, 5}, 2, 0.1, 2));
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float p, float q) {
      return std::bit_cast<uint32_t>(p) == std::bit_cast<uint32_t>(q);
    });
  };
  int count = 0;
#define LOCKSTEP_CHECK(name, text)                                                    \
  EXPECT_TRUE(same(results_of(#name "(x)", {x}), ops::name(x).to_vector())) << #name; \
  ++count;
  LOCKSTEP_UNARY_OPS(LOCKSTEP_CHECK)
#undef LOCKSTEP_CHECK
#define LOCKSTEP_CHECK(name, text)                                                               \
  EXPECT_TRUE(same(results_of(#name "(x1, x2)", {x, y}), ops::name(x, y).to_vector())) << #name; \
  ++count;
  LOCKSTEP_BINARY_OPS(LOCKSTEP_CHECK)
#undef LOCKSTEP_CHECK
  EXPECT_GT(count, 25);
  EXPECT_TRUE(same(results_of("softmax(x)", {x}), ops::softmax(x).to_vector()));
  EXPECT_TRUE(same(results_of("log_softmax(x)", {x}), ops::log_softmax(x, 1).to_vector()));
  for (const FormulaFunction& f : formula_functions()) {
    EXPECT_EQ(find_formula_function(f.name), &f);
    EXPECT_FALSE(f.help.empty()) << f.name;
  }
  EXPECT_EQ(find_formula_function("nothing"), nullptr);
}

TEST(FormulaValues, AxesAreThoseOfAnObservation) {
  const optest::Array images = random_array({2, 3, 4, 5}, 5);
  const Tensor x = tensor_of(images);
  const auto at = [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return images[((n * 3 + c) * 4 + h) * 5 + w];
  };
  const auto near = [](float actual, double expected) {
    EXPECT_NEAR(static_cast<double>(actual), expected, 1e-6);
  };
  // Over no axes, each number is by itself.
  const std::vector<float> sums = results_of("sum(x)", {x}),
                           sizes = results_of("norm(sum(x))", {x});
  for (size_t n = 0; n < 2; ++n) EXPECT_EQ(sizes[n], std::abs(sums[n]));
  EXPECT_EQ(results_of("std(sum(x))", {x}), std::vector<float>(2, 0));
  EXPECT_EQ(results_of("var(sum(x))", {x}), std::vector<float>(2, 0));
  const std::vector<float> all = results_of("mean(x)", {x});
  const std::vector<float> rows = results_of("sum(x, axis=1)", {x});
  const std::vector<float> last = results_of("max(x, axis=-1)", {x});
  const std::vector<float> space = results_of("mean(x, axis=[1, 2], keep_dims=1)", {x});
  const std::vector<float> centered = results_of("x - mean(x, axis=[1, 2], keep_dims=1)", {x});
  const std::vector<float> scaled = results_of("x / (1 + sum(square(x)))", {x});
  ASSERT_EQ(all.size(), 2u);
  ASSERT_EQ(rows.size(), 30u);
  ASSERT_EQ(last.size(), 24u);
  ASSERT_EQ(space.size(), 6u);
  ASSERT_EQ(centered.size(), 120u);
  for (int64_t n = 0; n < 2; ++n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 60; ++i) {
      sum += images[n * 60 + i];
      squares += images[n * 60 + i] * images[n * 60 + i];
    }
    near(all[static_cast<size_t>(n)], sum / 60);
    for (int64_t c = 0; c < 3; ++c) {
      double channel = 0;
      for (int64_t i = 0; i < 20; ++i) channel += at(n, c, i / 5, i % 5);
      near(space[static_cast<size_t>(n * 3 + c)], channel / 20);
      for (int64_t w = 0; w < 5; ++w) {
        near(rows[static_cast<size_t>((n * 3 + c) * 5 + w)],
             at(n, c, 0, w) + at(n, c, 1, w) + at(n, c, 2, w) + at(n, c, 3, w));
      }
      for (int64_t h = 0; h < 4; ++h) {
        double most = -2;
        for (int64_t w = 0; w < 5; ++w) {
          most = std::max(most, at(n, c, h, w));
          const auto i = static_cast<size_t>(((n * 3 + c) * 4 + h) * 5 + w);
          near(centered[i], at(n, c, h, w) - channel / 20);
          near(scaled[i], at(n, c, h, w) / (1 + squares));
        }
        near(last[static_cast<size_t>((n * 3 + c) * 4 + h)], most);
      }
    }
  }
}

// The losses of two observations with three classes.
std::vector<float> losses_of(const std::string& loss, bool with_softmax) {
  check_loss(loss);
  Graph graph;
  const int x = graph.add_input({2, 3}, DType::f32);
  const int y = with_softmax ? graph.add(ops::make_softmax(), {x}, "softmax")[0] : x;
  const LossValues values = add_loss(graph, loss, y);
  graph.mark_output(values.loss);
  const auto plan = std::make_shared<const Plan>(graph, std::vector<Shape>(), PlanOptions{});
  PackedParameters packed({});
  PlanRun run(plan, packed, {});
  const std::vector<float> scores{1, 200, -1, 0.5f, 0, 3};
  const std::vector<int32_t> labels{0, 2};
  run.set_input(0, scores.data(), scores.size() * sizeof(float));
  run.set_input(1, labels.data(), labels.size() * sizeof(int32_t));
  run.forward({});
  std::vector<float> found(2);
  run.get_output(0, found.data(), found.size() * sizeof(float));
  return found;
}

// With settings it is computed from the logits, too: the probability of the first label is 0.
TEST(FormulaValues, CrossEntropiesHaveSettings) {
  const Tensor scores = Tensor::from(std::vector<float>{1, 200, -1, 0.5f, 0, 3}, {2, 3});
  const Tensor labels = Tensor::from(std::vector<int32_t>{0, 2}, {2});
  const Tensor weights = Tensor::from(std::vector<float>{0.5f, 2, 1}, {3});
  const std::string settings = "weights=[1/2, 2, 1], ignore_index=2, label_smoothing=0.1)";
  const std::vector<float> expected =
      ops::softmax_cross_entropy(scores, labels, weights,
                                 {.ignore_index = 2, .label_smoothing = 0.1})
          .to_vector();
  EXPECT_GT(expected[0], 80);
  EXPECT_EQ(expected[1], 0);
  EXPECT_EQ(losses_of("cross_entropy(output, target, " + settings, true), expected);
  EXPECT_EQ(losses_of("softmax_cross_entropy(output, target, " + settings, false), expected);
  EXPECT_EQ(losses_of("nll(log_softmax(output), target, weights=[0.5, 2, 1])", false),
            ops::nll(ops::log_softmax(scores, 1), labels, weights).to_vector());
  EXPECT_EQ(losses_of("cross_entropy(output, target, label_smoothing=0)", true),
            ops::softmax_cross_entropy(scores, labels).to_vector());
  for (const auto& [loss, part] :
       {std::pair{"nll(output, target, weights=[1, 2])", "3 weights, one for each class"},
        {"cross_entropy(output, target, label_smoothing=2)", "label_smoothing must be from 0 to 1"},
        {"nll(output, target, ignore_index=0.5)", "ignore_index must be a whole number"}}) {
    EXPECT_NE(optest::refusal_of([&, loss = loss] { losses_of(loss, true); }).find(part),
              std::string::npos)
        << loss;
  }
}

// Of two images of 2 x 2 pixels, three of which have no class.
std::vector<float> losses_of_maps(const std::string& loss) {
  check_loss(loss);
  Graph graph;
  const int x = graph.add_input({2, 3, 2, 2}, DType::f32);
  const int y = graph.add(ops::make_softmax(), {x}, "softmax")[0];
  graph.mark_output(add_loss(graph, loss, y).loss);
  const auto plan = std::make_shared<const Plan>(graph, std::vector<Shape>(), PlanOptions{});
  PackedParameters packed({});
  PlanRun run(plan, packed, {});
  const std::vector<float> scores = tensor_of(random_array({2, 3, 2, 2}, 8)).to_vector();
  const std::vector<int32_t> labels{0, -100, 2, 1, -100, 1, 1, -100};
  run.set_input(0, scores.data(), scores.size() * sizeof(float));
  run.set_input(1, labels.data(), labels.size() * sizeof(int32_t));
  run.forward({});
  std::vector<float> found(2);
  run.get_output(0, found.data(), found.size() * sizeof(float));
  return found;
}

// One number for an image counts for each of its pixels that have a class.
TEST(FormulaValues, LossesOfWholeImages) {
  const std::vector<float> dice = losses_of_maps("dice_loss"),
                           both = losses_of_maps("0.5 * cross_entropy + dice_loss"),
                           crossed = losses_of_maps("cross_entropy");
  const Tensor p = ops::softmax(tensor_of(random_array({2, 3, 2, 2}, 8)));
  const Tensor y = Tensor::from(std::vector<int32_t>{0, -100, 2, 1, -100, 1, 1, -100}, {2, 2, 2});
  const std::vector<float> of_images = ops::dice_loss(p, y).to_vector();
  const std::string counted = "sum(one_hot(target, 3), axis=0, keep_dims=1)";
  const std::string sums = "sum(output * " + counted + ", axis=[1, 2])";
  const std::vector<float> by_one_hot =
      losses_of_maps("mean(1 - (2 * sum(output * one_hot(target, 3), axis=[1, 2]) + 1) / (" + sums +
                     " + sum(one_hot(target, 3), axis=[1, 2]) + 1))");
  for (size_t i = 0; i < 2; ++i) {
    const float pixels = i == 0 ? 3 : 2;
    EXPECT_NEAR(dice[i], pixels * of_images[i], 1e-6);
    EXPECT_NEAR(by_one_hot[i], dice[i], 1e-6);
    EXPECT_NEAR(both[i], 0.5f * crossed[i] + dice[i], 2e-6);
  }
  EXPECT_EQ(losses_of_maps("dice_loss(output, target, weights=[0, 1, 1], smooth=0.5)").size(), 2u);
  for (const auto& [loss, part] :
       {std::pair{"dice_loss(output, target, smooth=0)", "smooth must be above 0"},
        {"dice_loss(output, target, weights=[0, 0, 0])", "one of the weights must be above 0"},
        {"dice_loss(output, target, weights=[1, 1, -1])", "a weight is 0 or above"},
        {"dice_loss(output, output)", "expected labels"},
        {"sum(cross_entropy(output, target), axis=0)", "or one for the observation, but"}}) {
    EXPECT_NE(optest::refusal_of([&, loss = loss] { losses_of_maps(loss); }).find(part),
              std::string::npos)
        << loss;
  }
}

TEST(FormulaValues, TrianglesAndProductsAreThoseOfAnObservation) {
  const Tensor x = tensor_of(random_array({2, 3, 4, 5}, 5));
  EXPECT_EQ(results_of("tril(x, k=-1)", {x}), ops::tril(x, -1).to_vector());
  EXPECT_EQ(results_of("triu(x)", {x}), ops::triu(x).to_vector());
  EXPECT_EQ(results_of("prod(x, axis=[0, -1])", {x}), ops::prod(x, {1, 3}).to_vector());
  EXPECT_EQ(results_of("all(x > -0.5) + any(x > 0.5)", {x}),
            (ops::all(ops::greater(x, -0.5), {1, 2, 3}) + ops::any(ops::greater(x, 0.5), {1, 2, 3}))
                .to_vector());
  const Tensor a = tensor_of(random_array({2, 3}, 6)), b = a + 0.1, c = a * 0.5;
  EXPECT_EQ(results_of("triplet_margin(x1, x2, x3, margin=0.5)", {a, b, c}),
            ops::triplet_margin(a, b, c, 0.5).to_vector());
  EXPECT_NE(optest::refusal_of([&] {
              results_of("tril(x)", {a});
            }).find("expected an observation of matrices, received 3"),
            std::string::npos);
}

// As many observations as channels: the batch must not be taken for an axis.
TEST(FormulaValues, ObservationsNeverMix) {
  for (const int64_t n : {1, 3, 4}) {
    const Tensor x = tensor_of(random_array({n, 3}, 7));
    const std::vector<float> v = x.to_vector();
    const std::vector<float> y = results_of("x - mean(x)", {x});
    const std::vector<float> m = results_of("max(x) - min(x) * x", {x});
    for (int64_t i = 0; i < n; ++i) {
      const auto row = v.begin() + i * 3;
      const double mean = (static_cast<double>(row[0]) + row[1] + row[2]) / 3;
      for (int64_t k = 0; k < 3; ++k) {
        const auto j = static_cast<size_t>(i * 3 + k);
        EXPECT_NEAR(static_cast<double>(y[j]), static_cast<double>(row[k]) - mean, 1e-6);
        EXPECT_FLOAT_EQ(m[j],
                        *std::max_element(row, row + 3) - *std::min_element(row, row + 3) * row[k]);
      }
    }
  }
}

TEST(FormulaValues, LayersHaveDerivativesOfAnyOrder) {
  Network network;
  network.add(feature_input({.features = 4, .normalization = "none"}));
  network.add(function_layer({.expression = "x ** 3 + mean(square(x)) * x"}));
  network.initialize(1);
  const optest::Array values = random_array({3, 4}, 9);
  const Tensor x = tensor_of(values);
  Tape tape;
  tape.watch(x);
  const Tensor dx = tape.gradient(ops::sum(network.forward({x})), {x}, {.create_graph = true})[0];
  const std::vector<float> first = dx.to_vector();
  const std::vector<float> second = tape.gradient(ops::sum(dx), {x})[0].to_vector();
  for (int64_t n = 0; n < 3; ++n) {
    double s = 0, q = 0;
    for (int64_t k = 0; k < 4; ++k) {
      s += values[n * 4 + k];
      q += values[n * 4 + k] * values[n * 4 + k];
    }
    for (int64_t k = 0; k < 4; ++k) {
      const double v = values[n * 4 + k];
      const auto i = static_cast<size_t>(n * 4 + k);
      EXPECT_NEAR(static_cast<double>(first[i]), 3 * v * v + q / 4 + v * s / 2, 1e-5);
      // Of the sum of first over k: 6 v + 4 * (2 v / 4) + s / 2 + 4 * ... of v * s / 2.
      EXPECT_NEAR(static_cast<double>(second[i]), 6 * v + 2 * v + s, 1e-4);
    }
  }
}

}  // namespace
}  // namespace lockstep::formulas
