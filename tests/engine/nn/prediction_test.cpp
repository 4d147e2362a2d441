// A score does not depend on the number or the values of the other observations.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

constexpr int64_t kMost = 33;

// Elements of rows [first, first + count).
Tensor rows_of(const Tensor& x, int64_t first, int64_t count) {
  const std::vector<float> all = x.to_vector();
  const auto each = static_cast<int64_t>(all.size()) / x.shape()[0];
  const std::vector<float> some(all.begin() + first * each, all.begin() + (first + count) * each);
  return Tensor::from(some, x.shape().with_batch(count));
}

void expect_rows_to_stand_alone(Network network, const Shape& observation) {
  network.initialize(3);
  const Tensor x =
      optest::tensor_of(optest::random_array(observation.with_batch(kMost).dims(), 1, -2, 2));
  std::vector<std::vector<float>> alone;
  for (int64_t i = 0; i < kMost; ++i) {
    alone.push_back(network.predict(rows_of(x, i, 1)).to_vector());
  }
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32, 33}) {
    for (int64_t first : {int64_t{0}, kMost - n}) {
      const Tensor y = network.predict(rows_of(x, first, n));
      ASSERT_EQ(y.shape()[0], n);
      const std::vector<float> scores = y.to_vector();
      const size_t width = scores.size() / static_cast<size_t>(n);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        const auto& wanted = alone[static_cast<size_t>(first) + i];
        ASSERT_EQ(wanted.size(), width);
        EXPECT_EQ(std::memcmp(scores.data() + i * width, wanted.data(), width * sizeof(float)), 0)
            << "row " << i << " of " << n << " from " << first;
      }
    }
  }
}

TEST(Prediction, RowsOfAConvolutionalNetworkStandAlone) {
  const auto convolution = [](int64_t filters, int64_t stride = 1) {
    return convolution2d({.filters = filters,
                          .kernel = {3, 3},
                          .stride = {stride, stride},
                          .padding = same_padding});
  };
  expect_rows_to_stand_alone(
      Network{image_input({.height = 20, .width = 20, .channels = 3, .normalization = "none"}),
              convolution(32), batch_normalization(), relu(), convolution(32),
              max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}), convolution(20, 2),
              batch_normalization(), relu(), global_average_pooling2d(),
              fully_connected({.units = 10}), softmax()},
      {1, 3, 20, 20});
}

TEST(Prediction, RowsOfADenseNetworkStandAlone) {
  for (int64_t width : {7, 64, 300}) {
    expect_rows_to_stand_alone(Network{feature_input({.features = width, .normalization = "none"}),
                                       fully_connected({.units = 2 * width}), relu(),
                                       fully_connected({.units = width + 1}), layer_normalization(),
                                       tanh(), fully_connected({.units = 3}), softmax()},
                               {1, width});
  }
}

TEST(Prediction, IsWhatForwardGivesUpToRounding) {
  Network network{image_input({.height = 12, .width = 12, .channels = 1, .normalization = "none"}),
                  convolution2d({.filters = 6, .kernel = {3, 3}}), relu(),
                  fully_connected({.units = 4})};
  network.initialize(5);
  for (int64_t n : {1, 16, 50}) {
    const Tensor x = optest::tensor_of(optest::random_array({n, 1, 12, 12}, 2));
    EXPECT_LT(optest::relative_error(optest::array_of(network.predict(x)),
                                     optest::array_of(network.forward({x}))),
              1e-6);
  }
}

TEST(Prediction, OfInputsThatDoNotFitIsRefused) {
  Network two;
  two.add(image_input({.height = 4, .width = 4, .channels = 1, .normalization = "none"}), "left");
  two.add(image_input({.height = 4, .width = 4, .channels = 1, .normalization = "none"}), "right");
  two.add(addition(), "sum", {"left", "right"});
  two.add(fully_connected({.units = 2}));
  two.initialize(1);
  EXPECT_THROW(two.predict(Tensor::zeros({1, 1, 4, 4})), InvalidArgument);
  Network one{image_input({.height = 4, .width = 4, .channels = 1, .normalization = "none"}),
              fully_connected({.units = 2})};
  one.initialize(1);
  EXPECT_THROW(one.predict(Tensor::zeros({0, 1, 4, 4})), InvalidArgument);
  EXPECT_THROW(one.predict(Tensor::zeros({2, 1, 4, 5})), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
