// Fully connected layers behind images in the layout of convolutions, at sizes and numbers of
// channels at which a layout change once left gradients unwritten. The reference is fp64.
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"
#include "tests/engine/plan/comparison.h"

namespace lockstep {
namespace {

using optest::random_array;
using optest::relative_error;
using optest::tensor_of;
using reference::Array;

constexpr double kMostError = 1e-5;

struct Dense {
  int64_t n, channels, rows, columns, units;

  int64_t inputs() const { return channels * rows * columns; }
  std::vector<int64_t> image() const { return {n, channels, rows, columns}; }
  std::string name() const {
    return Shape(image()).to_string() + " to " + std::to_string(units) + " units";
  }
};

// Images of 112 x 112 and of 224 x 224, and some with odd sizes. A single image has weights in
// another layout.
std::vector<Dense> all_sizes() {
  std::vector<Dense> all{{2, 9, 224, 224, 2},   {3, 17, 224, 223, 1},  {2, 12, 97, 131, 10},
                         {2, 20, 112, 112, 10}, {1, 20, 112, 112, 10}, {2, 20, 1, 13'000, 5},
                         {17, 45, 81, 80, 3}};
  for (int64_t channels = 9; channels <= 31; ++channels) {
    if (channels % 8 != 0) all.push_back({2, channels, 112, 112, 3});
  }
  return all;
}

struct Values {
  explicit Values(const Dense& d)
      : x(random_array(d.image(), 1)),
        weights(random_array({d.units, d.inputs()}, 2)),
        bias(random_array({d.units}, 3)),
        dy(random_array({d.n, d.units}, 4)) {}
  Array x, weights, bias, dy;
};

// Gradients of weights and bias.
std::vector<Array> expected_gradients(const Dense& d, const Values& v) {
  Array weights({d.units, d.inputs()}), bias({d.units});
  for (int64_t n = 0; n < d.n; ++n) {
    for (int64_t u = 0; u < d.units; ++u) {
      const double dy = v.dy[n * d.units + u];
      bias[u] += dy;
      for (int64_t i = 0; i < d.inputs(); ++i) {
        weights[u * d.inputs() + i] += dy * v.x[n * d.inputs() + i];
      }
    }
  }
  return {weights, bias};
}

// Every channel by itself, because one of twenty is a small part of the norm.
void expect_gradients(const Dense& d, const Array& weights, const Array& bias,
                      const std::vector<Array>& expected) {
  ASSERT_EQ(weights.count(), expected[0].count());
  const int64_t places = d.rows * d.columns;
  for (int64_t c = 0; c < d.channels; ++c) {
    Array here({d.units, places}), there({d.units, places});
    for (int64_t u = 0; u < d.units; ++u) {
      for (int64_t i = 0; i < places; ++i) {
        here[u * places + i] = weights[u * d.inputs() + c * places + i];
        there[u * places + i] = expected[0][u * d.inputs() + c * places + i];
      }
    }
    EXPECT_LE(relative_error(here, there), kMostError) << "weights of channel " << c;
  }
  EXPECT_LE(relative_error(bias, expected[1]), kMostError) << "bias";
}

TEST(DenseBehindImages, GradientsOfEveryChannelAreWritten) {
  const Poisoned poisoned(Poison::not_a_number);
  for (const Dense& d : all_sizes()) {
    SCOPED_TRACE(d.name());
    const Values v(d);
    const TensorSpec layout = optest::image_layout({}, Shape(d.image()));
    const Tensor x = convert(tensor_of(v.x), layout);
    const Tensor weights = tensor_of(v.weights), bias = tensor_of(v.bias);
    Tape tape;
    tape.watch(std::vector<Tensor>{x, weights, bias});
    const Tensor y = apply_op(ops::make_fully_connected(true), {x, weights, bias})[0];
    const auto gradients = tape.gradient(optest::weighted_sum(y, v.dy), {weights, bias});
    expect_gradients(d, optest::array_of(gradients[0]), optest::array_of(gradients[1]),
                     expected_gradients(d, v));
  }
}

// A convolution with weights of 1 whose filters copy a channel, then the dense layer: the plan adds
// and converts gradients as a training does.
TEST(DenseBehindImages, PlansWriteGradientsOfEveryChannel) {
  for (const Dense& d : {Dense{2, 20, 112, 112, 10}, Dense{2, 13, 112, 112, 3}}) {
    SCOPED_TRACE(d.name());
    const Values v(d);
    Graph graph;
    const int x = graph.add_input(Shape(d.image()), DType::f32);
    const int filters = graph.add_parameter(0, Shape{d.channels, d.channels, 1, 1});
    const int weights = graph.add_parameter(1, Shape{d.units, d.inputs()});
    const int bias = graph.add_parameter(2, Shape{d.units});
    const int images = graph.add(ops::make_convolution2d({}, false), {x, filters}, "copy")[0];
    graph.mark_output(
        graph.add(ops::make_fully_connected(true), {images, weights, bias}, "dense")[0]);
    Array identity({d.channels, d.channels, 1, 1});
    for (int64_t c = 0; c < d.channels; ++c) identity[c * d.channels + c] = 1;
    const plantest::Values values{
        {tensor_of(v.x)}, {tensor_of(identity), tensor_of(v.weights), tensor_of(v.bias)}, {}};
    const Poisoned poisoned(Poison::not_a_number);
    plantest::Planned plan(graph, values, {0});
    const plantest::Result made = plan(graph, values, {0});
    Values seeded = v;
    seeded.dy = plantest::seed_weights(graph, {0})[0];
    expect_gradients(d, made.parameters[1], made.parameters[2], expected_gradients(d, seeded));
  }
}

}  // namespace
}  // namespace lockstep
