// Derivatives of the gradients of networks. Beside PyTorch: tests/random_networks.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

// The Hessian times a direction, of a network in one plan and of its ops one by one.
TEST(SecondDerivatives, OfANetworkAreThoseOfEagerOps) {
  Network network({feature_input({.features = 5, .normalization = "none"}),
                   fully_connected({.units = 7}), tanh(), fully_connected({.units = 3})});
  network.initialize(1);
  const Tensor x = optest::tensor_of(optest::random_array({6, 5}, 1));
  const std::vector<Tensor> p = network.parameter_values();
  const auto eager = [&] {
    return ops::fully_connected(ops::tanh(ops::fully_connected(x, p[0], p[1])), p[2], p[3]);
  };
  const auto products = [&](const std::function<Tensor()>& forward) {
    Tape tape;
    tape.watch(x);
    tape.watch(p);
    std::vector<Tensor> wanted = p;
    wanted.push_back(x);
    const Tensor y = forward();
    const auto first =
        tape.gradient(ops::sum(ops::multiply({y, y})), wanted, {.create_graph = true});
    Tensor slope;
    for (size_t i = 0; i < first.size(); ++i) {
      const auto direction = optest::random_array(wanted[i].shape().dims(), 100 + i);
      const Tensor term = optest::weighted_sum(first[i], direction);
      slope = slope.defined() ? ops::add({slope, term}) : term;
    }
    return tape.gradient(slope, wanted);
  };
  const auto planned = products([&] { return network.forward({x}, {.training = true}); });
  const auto expected = products(eager);
  ASSERT_EQ(planned.size(), expected.size());
  for (size_t i = 0; i < planned.size(); ++i) {
    EXPECT_LT(optest::relative_error(optest::array_of(planned[i]), optest::array_of(expected[i])),
              1e-5)
        << i;
  }
}

// Near 0 the second derivative is about -2 x: as a difference of sigmoids it had the absolute error
// of these, and at 0.001 four right digits.
TEST(SecondDerivatives, OfTanhHasItsDigitsNearZeroAndFarFromIt) {
  std::vector<float> points{0};
  for (const float at : {1e-6f, 1e-4f, 1e-3f, 0.0117f, 0.2f, 0.5f, 0.88f, 0.9f, 1.5f, 4.0f, 9.0f}) {
    points.push_back(at);
    points.push_back(-at);
  }
  const Tensor x = Tensor::from(points, {static_cast<int64_t>(points.size())});
  Tape tape;
  tape.watch(x);
  const Tensor slope = tape.gradient(ops::sum(ops::tanh(x)), {x}, {.create_graph = true})[0];
  const std::vector<float> second = tape.gradient(ops::sum(slope), {x})[0].to_vector();
  for (size_t i = 0; i < points.size(); ++i) {
    const double at = static_cast<double>(points[i]), cosh = std::cosh(at);
    const double exact = -2 * std::tanh(at) / (cosh * cosh);
    EXPECT_NEAR(static_cast<double>(second[i]), exact, 2e-6 * std::abs(exact)) << at;
  }
}

TEST(SecondDerivatives, OfParametersThatChangedSinceAreRefused) {
  Network network({feature_input({.features = 2, .normalization = "none"}),
                   fully_connected({.units = 2}), tanh()});
  network.initialize(1);
  const Tensor x = optest::tensor_of(optest::random_array({3, 2}, 1));
  Tape tape;
  tape.watch(x);
  const Tensor dx = tape.gradient(ops::sum(network.forward({x})), {x}, {.create_graph = true})[0];
  const Tensor penalty = ops::sum(ops::multiply({dx, dx}));
  EXPECT_NO_THROW(tape.gradient(penalty, {x}));
  network.parameter_values()[0].data<float>()[0] += 1;
  EXPECT_THROW(tape.gradient(penalty, {x}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
