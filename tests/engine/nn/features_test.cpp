// Networks of feature vectors.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using optest::array_of;
using optest::relative_error;

Network of_features() {
  Network n{feature_input({.features = 7, .normalization = "none"}),
            fully_connected({.units = 12}),
            layer_normalization(),
            gelu(),
            fully_connected({.units = 3}),
            softmax()};
  n.initialize(5);
  const std::vector<float> offset{0, 1, 2, 3, 4, 5, 6}, factor{1, 2, 1, 2, 1, 2, 1};
  n.state_value("feature_input_1.offset").copy_from(Tensor::from(offset, {7}));
  n.state_value("feature_input_1.factor").copy_from(Tensor::from(factor, {7}));
  return n;
}

TEST(Features, ANetworkComputesWhatItsOpsDo) {
  Network n = of_features();
  EXPECT_EQ(n.input_shapes(), std::vector<Shape>{Shape{7}});
  EXPECT_NE(n.summary().find("feature_input"), std::string::npos);
  const Tensor x = optest::tensor_of(optest::random_array({4, 7}, 1, -5, 5));
  Tensor y = ops::normalize_images(x, n.state_value("feature_input_1.offset"),
                                   n.state_value("feature_input_1.factor"));
  EXPECT_EQ(y.to_vector()[1], (x.to_vector()[1] - 1) * 2);
  y = ops::fully_connected(y, n.parameter("fully_connected_1.weights"),
                           n.parameter("fully_connected_1.bias"));
  y = ops::gelu(ops::group_normalization(y, n.parameter("layer_normalization_1.scale"),
                                         n.parameter("layer_normalization_1.shift"), 1));
  y = ops::softmax(ops::fully_connected(y, n.parameter("fully_connected_2.weights"),
                                        n.parameter("fully_connected_2.bias")));
  EXPECT_LT(relative_error(array_of(n.predict(x)), array_of(y)), 1e-6);
  EXPECT_THROW(n.predict(Tensor::zeros({4, 6})), InvalidArgument);
  EXPECT_THROW(n.predict(Tensor::zeros({7})), InvalidArgument);
}

TEST(Features, ANetworkLearns) {
  Network n = of_features();
  const Tensor x = optest::tensor_of(optest::random_array({30, 7}, 2, -5, 5));
  std::vector<int32_t> classes;
  for (int32_t i = 0; i < 30; ++i) classes.push_back(i * 7 % 3);
  const Tensor targets = Tensor::from(classes, Shape{30});
  const auto parameters = n.parameter_values();
  double first = 0, last = 0;
  for (uint64_t iteration = 1; iteration <= 150; ++iteration) {
    Tape tape;
    tape.watch(parameters);
    const Tensor loss =
        ops::mean(ops::cross_entropy(n.forward({x}, {true, {0, iteration, 0}}), targets));
    last = static_cast<double>(loss.item());
    if (iteration == 1) first = last;
    const auto gradients = tape.gradient(loss, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto g = gradients[i].to_vector();
      for (size_t k = 0; k < g.size(); ++k) parameters[i].data<float>()[k] -= 0.3f * g[k];
    }
  }
  EXPECT_LT(last, 0.5 * first);
}

// Layers for any number of axes, behind inputs with one and with three.
void expect_learning(Network n, const Shape& input) {
  n.set_loss("cross_entropy");
  n.initialize(3);
  std::vector<int64_t> dims = input.dims();
  dims.insert(dims.begin(), 12);
  const Tensor x = optest::tensor_of(optest::random_array(dims, 2, -1, 1));
  std::vector<int32_t> classes;
  for (int32_t i = 0; i < 12; ++i) classes.push_back(i % 3);
  const Tensor targets = Tensor::from(classes, Shape{12});
  const auto parameters = n.parameter_values();
  double first = 0, last = 0;
  for (uint64_t iteration = 1; iteration <= 40; ++iteration) {
    Tape tape;
    tape.watch(parameters);
    const Tensor loss =
        ops::mean(ops::cross_entropy(n.forward({x}, {true, {0, iteration, 0}}), targets));
    last = static_cast<double>(loss.item());
    if (iteration == 1) first = last;
    const auto gradients = tape.gradient(loss, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto g = gradients[i].to_vector();
      for (size_t k = 0; k < g.size(); ++k) parameters[i].data<float>()[k] -= 0.1f * g[k];
    }
  }
  EXPECT_LT(last, 0.6 * first);
  EXPECT_EQ(n.predict(x).shape(), (Shape{12, 3}));
}

TEST(Sequences, ANetworkLearns) {
  expect_learning(
      Network{sequence_input({.channels = 5, .length = 33, .normalization = "none"}),
              convolution1d({.filters = 16, .kernel = 5, .padding = {.same = true}}),
              batch_normalization(), relu(), max_pooling1d({.pool = 2, .stride = 2}),
              convolution1d({.filters = 11, .kernel = 3, .stride = 2, .dilation = 2}),
              layer_normalization(), gelu(), dropout({.probability = 0.1}),
              average_pooling1d({.pool = 2}), flatten(), fully_connected({.units = 3}), softmax()},
      {5, 33});
}

TEST(ImagesWithDepth, ANetworkLearns) {
  expect_learning(
      Network{image3d_input(
                  {.depth = 6, .height = 7, .width = 8, .channels = 2, .normalization = "none"}),
              convolution3d({.filters = 16, .kernel = {3, 3, 3}, .padding = Padding3d::all(1)}),
              batch_normalization(), relu(), max_pooling3d({.stride = {2, 2, 2}}),
              convolution3d({.filters = 8, .kernel = {2, 2, 2}}),
              group_normalization({.groups = 4}), swish(), average_pooling3d({.pool = {1, 2, 2}}),
              global_average_pooling3d(), fully_connected({.units = 3}), softmax()},
      {2, 6, 7, 8});
}

TEST(ImagesWithDepth, SizesAreNamedAndReshaped) {
  const Network wrong{sequence_input({.channels = 5, .length = 33, .normalization = "none"}),
                      convolution2d({.filters = 2, .kernel = {3, 3}})};
  ASSERT_EQ(wrong.analyze().size(), 1u);
  EXPECT_NE(wrong.analyze()[0].message.find("[convolution2d] expected images of n x c x h x w"),
            std::string::npos);
  const Network folded{sequence_input({.channels = 2, .length = 24, .normalization = "none"}),
                       reshape({.size = {2, 2, 3, 4}}), convolution3d({.filters = 5}),
                       global_average_pooling3d()};
  EXPECT_EQ(folded.output_shapes(), (std::vector<Shape>{{5, 1, 1, 1}}));
}

}  // namespace
}  // namespace lockstep
