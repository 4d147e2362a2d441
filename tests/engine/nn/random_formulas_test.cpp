// Random expressions beside an interpreter in fp64 that shares no code with the library: values,
// and gradients beside its central differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "lockstep/engine/nn/formulas/formula_parser.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::random_formulas {
namespace {

using optest::Array;
using NodeKind = FormulaNode::Kind;

// One observation.
struct Observation {
  std::vector<int64_t> dims;
  std::vector<double> values;
};

int64_t product_of(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

// The element of x that index i of the shape `dims` reads.
double broadcast_element(const Observation& x, const std::vector<int64_t>& dims, int64_t i) {
  int64_t at = 0, stride = 1;
  const size_t missing = dims.size() - x.dims.size();
  for (size_t a = dims.size(); a-- > missing;) {
    const int64_t index = i % dims[a];
    i /= dims[a];
    if (x.dims[a - missing] > 1) at += index * stride;
    stride *= x.dims[a - missing];
  }
  return x.values[static_cast<size_t>(at)];
}

using Each = std::function<double(double, double)>;

Observation combined(const Observation& a, const Observation& b, const Each& f) {
  std::vector<int64_t> dims(std::max(a.dims.size(), b.dims.size()), 1);
  for (const Observation* x : {&a, &b}) {
    const size_t missing = dims.size() - x->dims.size();
    for (size_t i = 0; i < x->dims.size(); ++i) {
      if (x->dims[i] > 1) dims[missing + i] = x->dims[i];
    }
  }
  Observation y{dims, {}};
  for (int64_t i = 0; i < product_of(dims); ++i) {
    y.values.push_back(f(broadcast_element(a, dims, i), broadcast_element(b, dims, i)));
  }
  return y;
}

// The mean or sum over one axis, or over all (-1).
Observation reduced(const Observation& x, int64_t axis, bool keep, bool mean) {
  Observation y;
  if (axis < 0) {
    double sum = 0;
    for (const double v : x.values) sum += v;
    y.dims.assign(keep ? x.dims.size() : 0, 1);
    y.values = {mean ? sum / static_cast<double>(x.values.size()) : sum};
    return y;
  }
  const auto a = static_cast<size_t>(axis);
  int64_t inner = 1;
  for (size_t i = a + 1; i < x.dims.size(); ++i) inner *= x.dims[i];
  const int64_t size = x.dims[a], outer = product_of(x.dims) / (inner * size);
  y.dims = x.dims;
  if (keep) {
    y.dims[a] = 1;
  } else {
    y.dims.erase(y.dims.begin() + axis);
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        sum += x.values[static_cast<size_t>((o * size + k) * inner + i)];
      }
      y.values.push_back(mean ? sum / static_cast<double>(size) : sum);
    }
  }
  return y;
}

const std::map<std::string, Each>& signs() {
  static const std::map<std::string, Each> all{
      {"+", [](double a, double b) { return a + b; }},
      {"-", [](double a, double b) { return a - b; }},
      {"*", [](double a, double b) { return a * b; }},
      {"/", [](double a, double b) { return a / b; }},
      {"**", [](double a, double b) { return std::pow(a, b); }},
      {"<", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {">=", [](double a, double b) { return a >= b ? 1.0 : 0.0; }}};
  return all;
}

const std::map<std::string, double (*)(double)>& smooth_functions() {
  static const std::map<std::string, double (*)(double)> all{
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"softplus", [](double x) { return std::log1p(std::exp(x)); }},
      {"swish", [](double x) { return x / (1 + std::exp(-x)); }}};
  return all;
}

Observation interpreted(const FormulaNode& node, const std::vector<Observation>& inputs) {
  const auto argument = [&](size_t i) { return interpreted(*node.arguments[i].value, inputs); };
  switch (node.kind) {
    case NodeKind::number:
      return {{}, {static_cast<double>(static_cast<float>(node.number))}};
    case NodeKind::name:
      return inputs.at(static_cast<size_t>(node.name[1] - '1'));
    case NodeKind::operation: {
      if (node.arguments.size() == 2) {
        return combined(argument(0), argument(1), signs().at(node.name));
      }
      Observation x = argument(0);
      for (double& v : x.values) v = -v;
      return x;
    }
    case NodeKind::call:
      break;
    case NodeKind::list:
      throw std::logic_error("a list");
  }
  if (node.name == "where") {
    const Observation condition = argument(0);
    const Observation a = argument(1), b = argument(2);
    const auto taken = [](double c, double v) { return c != 0 ? v : 0.0; };
    const auto other = [](double c, double v) { return c == 0 ? v : 0.0; };
    return combined(combined(condition, a, taken), combined(condition, b, other), signs().at("+"));
  }
  Observation x = argument(0);
  if (node.name == "mean" || node.name == "sum") {
    int64_t axis = -1;
    bool keep = false;
    for (size_t i = 1; i < node.arguments.size(); ++i) {
      const auto number = static_cast<int64_t>(node.arguments[i].value->number);
      if (node.arguments[i].name == "axis") {
        axis = number;
      } else {
        keep = number != 0;
      }
    }
    return reduced(x, axis, keep, node.name == "mean");
  }
  for (double& v : x.values) v = smooth_functions().at(node.name)(v);
  return x;
}

// Texts of expressions with values near 1, of inputs x1 (3 x 4 x 2), x2 (4 x 2) and x3 (3 x 1 x 2).
class RandomTexts {
 public:
  explicit RandomTexts(uint64_t seed) : random_(seed) {}

  // Also the rank of an observation of the result.
  std::pair<std::string, int> text(int depth) {
    if (depth == 0) return leaf();
    switch (below(9)) {
      case 0:
        return leaf();
      case 1: {
        const auto [x, rank] = text(depth - 1);
        auto at = smooth_functions().begin();
        std::advance(at, below(static_cast<int>(smooth_functions().size())));
        return {at->first + "(" + x + ")", rank};
      }
      case 2: {
        const auto [x, rank] = text(depth - 1);
        return {"-" + parenthesized(x), rank};
      }
      case 3: {
        const auto [x, rank] = text(depth - 1);
        const auto [y, other] = text(depth - 1);
        return {parenthesized(x) + " / (2 + sigmoid(" + y + "))", std::max(rank, other)};
      }
      case 4: {
        const auto [x, rank] = text(depth - 1);
        return {"(1.5 + tanh(" + x + ")) ** " + (below(2) == 0 ? "2" : "1.3"), rank};
      }
      case 5: {  // the conditions are far from their limits
        const auto [x, rank] = text(depth - 1);
        const auto [y, other] = text(depth - 1);
        return {"where(x2 < 5e-4, " + x + ", " + y + ")", std::max({rank, other, 2})};
      }
      case 6: {
        const auto [x, rank] = text(depth - 1);
        if (rank == 0) return {"mean(" + x + ")", 0};
        const bool all = below(2) == 0, keep = below(2) == 0;
        std::string call = (all || below(2) == 0 ? "mean(" : "sum(") + x;
        if (!all) call += ", axis=" + std::to_string(below(rank));
        if (keep) call += ", keep_dims=1";
        // Without the axis the shapes of inputs may no longer fit each other.
        if (!all && !keep) return {"mean(" + call + "))", 0};
        return {call + ")", all && !keep ? 0 : rank};
      }
      default: {
        const auto [x, rank] = text(depth - 1);
        const auto [y, other] = text(depth - 1);
        const char* sign[] = {" + ", " - ", " * "};
        return {parenthesized(x) + sign[below(3)] + parenthesized(y), std::max(rank, other)};
      }
    }
  }

 private:
  std::pair<std::string, int> leaf() {
    switch (below(5)) {
      case 0:
        return {std::to_string(below(40)) + "e-1", 0};
      case 1:
        return {"x2", 2};
      case 2:
        return {"x3", 3};
      default:
        return {"x1", 3};
    }
  }
  static std::string parenthesized(const std::string& x) { return "(" + x + ")"; }
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  std::mt19937_64 random_;
};

Observation row(const Array& all, int64_t n) {
  const int64_t size = all.count() / all.dim(0);
  return {{all.dims.begin() + 1, all.dims.end()},
          {all.values.begin() + n * size, all.values.begin() + (n + 1) * size}};
}

// The weighted sum of the interpreter's results.
double weighed(const FormulaNode& root, const std::vector<Array>& inputs, const Array& weights) {
  const int64_t n = inputs[0].dim(0), size = weights.count() / n;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<Observation> one;
    for (const Array& input : inputs) one.push_back(row(input, i));
    const Observation y = interpreted(root, one);
    for (int64_t k = 0; k < size; ++k)
      sum += weights[i * size + k] * y.values[static_cast<size_t>(k)];
  }
  return sum;
}

TEST(RandomFormulas, HaveTheValuesAndGradientsOfAnInterpreter) {
  constexpr int64_t n = 3;
  int compared = 0, gradients = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    // Used in the result, so that no input is unused.
    const std::string text =
        RandomTexts(seed).text(1 + static_cast<int>(seed % 5)).first + " + 0.1 * x1 * x2 - x3";
    if (text.size() > 2000) continue;
    SCOPED_TRACE(std::to_string(seed) + ": " + text);
    const Formula formula = parse_formula(text, "[test] formula");
    std::vector<Array> inputs{optest::random_array({n, 3, 4, 2}, 3 * seed + 1),
                              optest::random_array({n, 4, 2}, 3 * seed + 2),
                              optest::random_array({n, 3, 1, 2}, 3 * seed + 3)};
    for (double& v : inputs[1].values) {
      if (std::abs(v) < 0.01) v = 0.25;
    }
    Network network;
    network.add(image_input({.height = 4, .width = 2, .channels = 3, .normalization = "none"}),
                "a");
    network.add(sequence_input({.channels = 4, .length = 2, .normalization = "none"}), "b");
    network.add(image_input({.height = 1, .width = 2, .channels = 3, .normalization = "none"}),
                "c");
    network.add(function_layer({.expression = text}), "f", {"a", "b", "c"});
    network.initialize(1);
    std::vector<Tensor> tensors;
    for (const Array& input : inputs) tensors.push_back(optest::tensor_of(input));
    Tape tape;
    tape.watch(tensors);
    const Tensor y = network.forward(tensors, {.training = true});
    ASSERT_EQ(y.shape(), (Shape{n, 3, 4, 2}));
    const std::vector<float> values = y.to_vector();
    double size = 1;
    for (int64_t i = 0; i < n; ++i) {
      const Observation expected =
          interpreted(*formula.root, {row(inputs[0], i), row(inputs[1], i), row(inputs[2], i)});
      for (int64_t k = 0; k < 24; ++k) {
        const double e = expected.values[static_cast<size_t>(k)];
        size = std::max(size, std::abs(e));
        ASSERT_NEAR(static_cast<double>(values[static_cast<size_t>(i * 24 + k)]), e, 2e-5 * size);
      }
    }
    ++compared;
    const Array weights = optest::random_array({n, 3, 4, 2}, seed + 9, 0.5, 1.5);
    const auto slopes = tape.gradient(optest::weighted_sum(y, weights), tensors);
    for (size_t k = 0; k < inputs.size(); ++k) {
      const std::vector<float> actual = slopes[k].to_vector();
      double scale = 1;
      for (const float s : actual) scale = std::max(scale, std::abs(static_cast<double>(s)));
      for (const int64_t i : {int64_t{0}, inputs[k].count() / 2, inputs[k].count() - 1}) {
        constexpr double h = 1e-5;
        const double middle = inputs[k][i];
        inputs[k][i] = middle + h;
        const double above = weighed(*formula.root, inputs, weights);
        inputs[k][i] = middle - h;
        const double below = weighed(*formula.root, inputs, weights);
        inputs[k][i] = middle;
        EXPECT_NEAR(static_cast<double>(actual[static_cast<size_t>(i)]), (above - below) / (2 * h),
                    1e-4 * scale);
        ++gradients;
      }
    }
  }
  EXPECT_GT(compared, 450);
  EXPECT_GT(gradients, 4000);
}

}  // namespace
}  // namespace lockstep::random_formulas
