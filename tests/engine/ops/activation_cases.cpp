#include <cmath>
#include <numbers>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

using kernels::ActivationKind;

struct Function {
  std::string name;
  ActivationKind kind;
  double parameter;
};

const std::vector<Function>& functions() {
  static const std::vector<Function> all{{"leaky", ActivationKind::leaky_relu, 0.01},
                                         {"steep", ActivationKind::leaky_relu, 2},
                                         {"unit", ActivationKind::elu, 1},
                                         {"half", ActivationKind::elu, 0.5},
                                         {"exact", ActivationKind::gelu, 0},
                                         {"approximated", ActivationKind::gelu_tanh, 0},
                                         {"of", ActivationKind::swish, 0},
                                         {"of", ActivationKind::tanh, 0},
                                         {"of", ActivationKind::sigmoid, 0},
                                         {"of", ActivationKind::softplus, 0}};
  return all;
}

OpPtr op_of(ActivationKind kind, double parameter) {
  switch (kind) {
    case ActivationKind::leaky_relu:
      return ops::make_leaky_relu(parameter);
    case ActivationKind::elu:
      return ops::make_elu(parameter);
    case ActivationKind::gelu:
      return ops::make_gelu(ops::GeluApproximation::none);
    case ActivationKind::gelu_tanh:
      return ops::make_gelu(ops::GeluApproximation::tanh);
    case ActivationKind::swish:
      return ops::make_swish();
    case ActivationKind::tanh:
      return ops::make_tanh();
    case ActivationKind::sigmoid:
      return ops::make_sigmoid();
    case ActivationKind::softplus:
      break;
  }
  return ops::make_softplus();
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The derivative of tanh, also for values at which tanh rounds to 1.
double tanh_slope(double x) { return 1 / (std::cosh(x) * std::cosh(x)); }

// The argument of gelu's approximation and its derivative.
double inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double inner_slope(double x) { return std::sqrt(2 / std::numbers::pi) * (1 + 0.134145 * x * x); }

double value(ActivationKind kind, double a, double x) {
  switch (kind) {
    case ActivationKind::leaky_relu:
      return x > 0 ? x : a * x;
    case ActivationKind::elu:
      return x > 0 ? x : a * std::expm1(x);
    case ActivationKind::gelu:
      return x * std::erfc(-x / std::numbers::sqrt2) / 2;
    case ActivationKind::gelu_tanh:
      return x * sigmoid(2 * inner(x));
    case ActivationKind::swish:
      return x * sigmoid(x);
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::sigmoid:
      return sigmoid(x);
    case ActivationKind::softplus:
      break;
  }
  return x > 40 ? x : std::log1p(std::exp(x));
}

double slope(ActivationKind kind, double a, double x) {
  switch (kind) {
    case ActivationKind::leaky_relu:
      return x > 0 ? 1 : a;
    case ActivationKind::elu:
      return x > 0 ? 1 : a * std::exp(x);
    case ActivationKind::gelu:
      return std::erfc(-x / std::numbers::sqrt2) / 2 +
             x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    case ActivationKind::gelu_tanh: {
      const double bell = std::abs(inner(x)) > 300 ? 0 : tanh_slope(inner(x));
      return sigmoid(2 * inner(x)) + x * bell * inner_slope(x) / 2;
    }
    case ActivationKind::swish:
      return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
    case ActivationKind::tanh:
      return tanh_slope(x);
    case ActivationKind::sigmoid:
      return sigmoid(x) * sigmoid(-x);
    case ActivationKind::softplus:
      break;
  }
  return sigmoid(x);
}

std::string text_of(const std::vector<int64_t>& dims) {
  std::string text;
  for (int64_t d : dims) text += "_" + std::to_string(d);
  return text.empty() ? "_scalar" : text;
}

}  // namespace

Case activation(std::string name, ActivationKind kind, Array x, double parameter) {
  Case c;
  c.name = std::move(name);
  c.op = op_of(kind, parameter);
  c.inputs = {{std::move(x)}};
  c.forward = [=](const std::vector<Array>& in) {
    Array y = in[0];
    for (double& v : y.values) v = value(kind, parameter, v);
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array dx = dy;
    for (int64_t i = 0; i < dx.count(); ++i) dx[i] *= slope(kind, parameter, in[0][i]);
    return std::vector<Array>{dx};
  };
  return c;
}

std::vector<Case> activation_cases() {
  std::vector<Case> cases;
  for (const Function& f : functions()) {
    for (const auto& dims : std::vector<std::vector<int64_t>>{
             {}, {1}, {33}, {7, 11}, {2, 11, 5, 3}, {2, 16, 4, 4}, {2, 17, 3, 3}, {1, 33, 3, 7}}) {
      cases.push_back(
          activation(f.name + text_of(dims), f.kind, random_array(dims, 80, -4, 4), f.parameter));
    }
    // Each range separately, so that large elements do not hide errors in small ones.
    const auto range = [&](const char* name, double low, double high) {
      cases.push_back(activation(f.name + "_" + name, f.kind, random_array({5, 7}, 81, low, high),
                                 f.parameter));
      cases.back().smooth = false;
    };
    range("near_zero", -1e-4, 1e-4);
    range("below", -8, -6);
    range("above", 8, 12);
    range("far_above", 1e20, 1e30);
    // Results for very negative values are 0 or close to it. An overflow would give NaN.
    Array ends = random_array({3, 11, 2, 3}, 82, -2, 2);
    const double extremes[] = {-1e38, 1e38, -1e4, 1e4, -100, 100, -88, 88, 0, -0.0};
    for (size_t i = 0; i < std::size(extremes); ++i) {
      ends[static_cast<int64_t>(3 * i)] = static_cast<double>(static_cast<float>(extremes[i]));
    }
    cases.push_back(activation(f.name + "_extremes", f.kind, ends, f.parameter));
    cases.back().smooth = false;
  }
  return cases;
}

}  // namespace lockstep::optest
