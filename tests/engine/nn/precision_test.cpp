// Networks in bf16 stay close to f32 for all layers, and differ from it.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using optest::array_of;
using optest::random_array;
using optest::relative_error;

// Alternates ops with and without bf16, with a residual block.
Network mixed_network() {
  Network network;
  network.add(image_input({.height = 12, .width = 10, .channels = 3, .normalization = "none"}));
  network.add(convolution2d({.filters = 16, .kernel = {3, 3}, .padding = same_padding}));
  network.add(batch_normalization());
  network.add(relu(), "left");
  network.add(convolution2d({.filters = 16, .kernel = {3, 3}, .padding = same_padding}));
  network.add(gelu());  // f32 only
  network.add(
      convolution2d({.filters = 16, .kernel = {3, 3}, .padding = same_padding, .groups = 4}),
      "right");
  network.add(addition(), "sum", {"left", "right"});
  network.add(max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}));
  network.add(group_normalization({.groups = 4}));  // f32 only
  network.add(transposed_convolution2d({.filters = 5, .kernel = {2, 2}, .stride = {2, 2}}), "wide");
  network.add(concatenation(), "both", {"wide", "sum"});
  network.add(batch_normalization());
  network.add(relu());
  network.add(max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}));
  network.add(flatten());
  network.add(fully_connected({.units = 20}));
  network.add(batch_normalization());
  network.add(relu());
  network.add(fully_connected({.units = 5}));
  network.initialize(3);
  return network;
}

struct Outcome {
  Tensor y;
  std::vector<Tensor> gradients, states;
};

Outcome run(DType precision, int64_t n = 9) {
  Network network = mixed_network();
  const Tensor x = optest::tensor_of(random_array({n, 3, 12, 10}, 1));
  const optest::Array weights = random_array({n, 5}, 2);
  const std::vector<Tensor> parameters = network.parameter_values();
  Tape tape;
  tape.watch(parameters);
  Outcome result;
  result.y = network.forward({x}, {.training = true, .precision = precision});
  result.gradients = tape.gradient(optest::weighted_sum(result.y, weights), parameters);
  for (const auto& state : network.state()) result.states.push_back(state.value);
  return result;
}

TEST(Precision, NetworksInBf16StayNearF32) {
  if (!kernels::table_for({}).bf16) {
    EXPECT_THROW(run(DType::bf16), Unsupported);
    GTEST_SKIP() << "no bf16 instructions: networks in bf16 were not run";
  }
  for (int64_t n : {9, 16, 32}) {  // images in blocks of channels, and in lanes
    SCOPED_TRACE(n);
    const Outcome exact = run(DType::f32, n), narrow = run(DType::bf16, n);
    EXPECT_EQ(narrow.y.dtype(), DType::f32);
    const double error = relative_error(array_of(narrow.y), array_of(exact.y));
    EXPECT_LE(error, 3e-2);
    EXPECT_GE(error, 1e-4) << "bf16 rounds more than that";
    EXPECT_FALSE(exact.states.empty() || exact.gradients.empty());
    for (size_t i = 0; i < exact.states.size(); ++i) {
      EXPECT_LE(relative_error(array_of(narrow.states[i]), array_of(exact.states[i]), 0.1), 3e-2);
    }
    for (size_t i = 0; i < exact.gradients.size(); ++i) {
      EXPECT_EQ(narrow.gradients[i].dtype(), DType::f32);
      // Activations near zero change sign, and biases before a normalization have no gradient.
      const double floor = exact.gradients[i].shape().rank() == 1 ? 3 : 0;
      EXPECT_LE(relative_error(array_of(narrow.gradients[i]), array_of(exact.gradients[i]), floor),
                n % 16 == 0 ? 0.3 : 0.2)
          << "parameter " << i;
    }
  }
}

TEST(Precision, TheSameBitsAgain) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const Outcome one = run(DType::bf16, 16), two = run(DType::bf16, 16);
  EXPECT_EQ(one.y.to_vector(), two.y.to_vector());
  ASSERT_FALSE(one.gradients.empty());
  for (size_t i = 0; i < one.gradients.size(); ++i) {
    EXPECT_EQ(one.gradients[i].to_vector(), two.gradients[i].to_vector());
  }
}

}  // namespace
}  // namespace lockstep
