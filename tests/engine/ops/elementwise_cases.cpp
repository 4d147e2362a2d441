#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

std::string text_of(const std::vector<int64_t>& dims) {
  std::string text;
  for (int64_t d : dims) text += (text.empty() ? "" : "x") + std::to_string(d);
  return text.empty() ? "scalar" : text;
}

}  // namespace

Case relu(std::string name, Array x) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_relu();
  c.inputs = {{std::move(x)}};
  c.forward = [](const std::vector<Array>& in) {
    return std::vector<Array>{reference::relu(in[0])};
  };
  c.backward = [](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{reference::relu_diff(in[0], dy)};
  };
  return c;
}

Case clipped_relu(std::string name, Array x, double ceiling) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_clipped_relu(ceiling);
  c.inputs = {{std::move(x)}};
  c.forward = [=](const std::vector<Array>& in) {
    Array y = in[0];
    for (double& v : y.values) v = v < 0 ? 0 : v > ceiling ? ceiling : v;
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array dx = dy;
    for (int64_t i = 0; i < dx.count(); ++i) {
      if (in[0][i] <= 0 || in[0][i] >= ceiling) dx[i] = 0;
    }
    return std::vector<Array>{dx};
  };
  return c;
}

Case addition(const std::vector<int64_t>& dims, int terms) {
  Case c;
  c.name = std::to_string(terms) + "_terms_of_" + text_of(dims);
  c.op = ops::make_add();
  for (int i = 0; i < terms; ++i) {
    c.inputs.push_back({random_array(dims, 30 + static_cast<uint64_t>(i))});
  }
  c.forward = [](const std::vector<Array>& in) {
    return std::vector<Array>{reference::addition(in)};
  };
  c.backward = [](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>(in.size(), dy);
  };
  return c;
}

Case multiplication(const std::vector<int64_t>& dims, int factors) {
  Case c;
  c.name = std::to_string(factors) + "_factors_of_" + text_of(dims);
  c.op = ops::make_multiply();
  for (int i = 0; i < factors; ++i) {
    c.inputs.push_back({random_array(dims, 70 + static_cast<uint64_t>(i), -2, 2)});
  }
  // Zeros in one or several factors: gradients must not come from a division.
  for (auto& input : c.inputs) {
    for (int64_t i = 0; i < input.value.count(); i += 5) input.value[i] = 0;
  }
  const auto product = [](std::vector<Array> all) {
    Array y = all[0];
    for (size_t k = 1; k < all.size(); ++k) {
      for (int64_t i = 0; i < y.count(); ++i) y[i] *= all[k][i];
    }
    return y;
  };
  c.forward = [=](const std::vector<Array>& in) { return std::vector<Array>{product(in)}; };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    std::vector<Array> all;
    for (size_t k = 0; k < in.size(); ++k) {
      std::vector<Array> others = in;
      others[k] = dy;
      all.push_back(product(others));
    }
    return all;
  };
  return c;
}

Case concatenation(const std::vector<std::vector<int64_t>>& parts, int axis) {
  Case c;
  c.name = "axis_" + std::to_string(axis) + "_of";
  c.op = ops::make_concat(axis);
  for (const auto& dims : parts) {
    c.name += "_" + text_of(dims);
    c.inputs.push_back({random_array(dims, 40 + c.inputs.size())});
  }
  c.forward = [=](const std::vector<Array>& in) {
    return std::vector<Array>{reference::concatenation(in, axis)};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    return reference::concatenation_diff(in, axis, dy);
  };
  return c;
}

namespace {

Case flatten(const std::vector<int64_t>& dims) {
  Case c;
  c.name = text_of(dims);
  c.op = ops::make_flatten();
  c.inputs = {{random_array(dims, 50)}};
  c.forward = [](const std::vector<Array>& in) {
    Array y = in[0];
    y.dims = {y.dim(0), y.count() / y.dim(0)};
    return std::vector<Array>{y};
  };
  c.backward = [](const std::vector<Array>& in, const Array& dy) {
    Array d = dy;
    d.dims = in[0].dims;
    return std::vector<Array>{d};
  };
  return c;
}

Case reshape(const std::vector<int64_t>& dims, const std::vector<int64_t>& observation) {
  Case c;
  c.name = text_of(dims) + "_to_" + text_of(observation);
  c.op = ops::make_reshape(Shape(observation));
  c.inputs = {{random_array(dims, 51)}};
  c.forward = [=](const std::vector<Array>& in) {
    Array y = in[0];
    y.dims = observation;
    y.dims.insert(y.dims.begin(), dims[0]);
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>&, const Array& dy) {
    Array d = dy;
    d.dims = dims;
    return std::vector<Array>{d};
  };
  return c;
}

// Element e of row r is kept when number e of the row's stream is not below p.
Array dropout_of(const Array& x, double p, uint64_t layer, const RandomContext& step) {
  Array y(x.dims);
  const int64_t each = x.count() / x.dim(0);
  for (int64_t i = 0; i < x.count(); ++i) {
    const RandomStream stream({step.seed, RandomUse::dropout, layer, step.iteration,
                               static_cast<uint64_t>(step.first_row + i / each)});
    const bool kept = stream.bits(static_cast<uint64_t>(i % each)) >= p * 4294967296.0;
    y[i] = kept ? x[i] / (1 - p) : 0;
  }
  return y;
}

Case dropout(std::string name, const std::vector<int64_t>& dims, double p,
             const RandomContext& step) {
  constexpr uint64_t layer = 0x123456789abcdef;
  Case c;
  c.name = std::move(name);
  c.op = ops::make_dropout(p, layer);
  c.inputs = {{random_array(dims, 60)}};
  c.step = step;
  c.forward = [=](const std::vector<Array>& in) {
    return std::vector<Array>{dropout_of(in[0], p, layer, step)};
  };
  c.backward = [=](const std::vector<Array>&, const Array& dy) {
    return std::vector<Array>{dropout_of(dy, p, layer, step)};
  };
  return c;
}

}  // namespace

std::vector<Case> elementwise_cases() {
  std::vector<Case> cases;
  for (const auto& dims : std::vector<std::vector<int64_t>>{{},
                                                            {1},
                                                            {33},
                                                            {7, 11},
                                                            {2, 3, 5},
                                                            {2, 11, 5, 3},
                                                            {2, 16, 4, 4},
                                                            {1, 33, 3, 7},
                                                            {2, 2, 3, 2, 3}}) {
    cases.push_back(relu(text_of(dims), random_array(dims, 22)));
    cases.push_back(clipped_relu(text_of(dims), random_array(dims, 24), 0.5));
    cases.push_back(addition(dims, 2));
    cases.push_back(multiplication(dims, 2));
    if (!dims.empty()) cases.push_back(flatten(dims));
  }
  Array zeros = random_array({3, 11, 4, 5}, 23);
  for (int64_t i = 0; i < zeros.count(); i += 3) zeros[i] = i % 2 == 0 ? 0.0 : -0.0;
  cases.push_back(relu("zeros", zeros));
  cases.back().smooth = false;

  cases.push_back(clipped_relu("zeros", zeros, 0.25));
  cases.back().smooth = false;
  Array edges = random_array({2, 11, 4, 5}, 25);
  for (int64_t i = 0; i < edges.count(); i += 3) edges[i] = 0.75;
  cases.push_back(clipped_relu("elements_at_the_ceiling", edges, 0.75));
  cases.back().smooth = false;

  cases.push_back(addition({3, 7}, 1));
  cases.push_back(addition({2, 11, 5, 3}, 1));
  cases.push_back(addition({2, 11, 5, 3}, 3));
  cases.push_back(addition({2, 17, 3, 3}, 5));

  cases.push_back(multiplication({3, 7}, 1));
  cases.push_back(multiplication({2, 11, 5, 3}, 3));
  cases.push_back(multiplication({2, 17, 3, 3}, 5));

  cases.push_back(reshape({3, 24}, {2, 3, 4}));
  cases.push_back(reshape({2, 11, 3, 4}, {132}));
  cases.push_back(reshape({2, 16, 4, 4}, {4, 8, 8}));
  cases.push_back(reshape({1, 33, 2, 1}, {11, 3, 2}));
  cases.push_back(reshape({5, 1}, {1, 1, 1}));
  cases.push_back(reshape({4}, {}));

  cases.push_back(concatenation({{2, 3, 4, 5}, {3, 3, 4, 5}}, 0));
  cases.push_back(concatenation({{2, 11, 4, 5}, {2, 22, 4, 5}}, 1));
  cases.push_back(concatenation({{2, 16, 4, 4}, {2, 1, 4, 4}, {2, 16, 4, 4}}, 1));
  cases.push_back(concatenation({{2, 7, 1, 5}, {2, 7, 3, 5}}, 2));
  cases.push_back(concatenation({{2, 17, 3, 4}, {2, 17, 3, 1}, {2, 17, 3, 2}}, 3));
  cases.push_back(concatenation({{2, 3}, {2, 1}, {2, 7}}, 1));
  cases.push_back(concatenation({{5}, {1}}, 0));
  cases.push_back(concatenation({{2, 11, 3, 3}}, 1));
  cases.push_back(concatenation({{1, 2, 3, 1, 2}, {1, 2, 3, 4, 2}}, 3));

  cases.push_back(dropout("half", {4, 11, 5, 3}, 0.5, {7, 3, 0}));
  cases.push_back(dropout("a_fifth_of_rank_2", {5, 33}, 0.2, {7, 3, 0}));
  cases.push_back(dropout("of_a_later_row", {3, 17}, 0.3, {7, 4, 125}));
  cases.push_back(dropout("nine_tenths", {2, 16, 4, 4}, 0.9, {~uint64_t{0}, 5, 1}));
  cases.push_back(dropout("nothing", {2, 16, 3, 3}, 0, {1, 1, 1}));
  cases.push_back(dropout("one_element_in_a_row", {33, 1}, 0.5, {1, 1, 1}));
  return cases;
}

}  // namespace lockstep::optest
