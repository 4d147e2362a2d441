#include "lockstep/engine/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/plan/compile.h"
#include "tests/engine/plan/comparison.h"

namespace lockstep {
namespace {

using namespace plantest;

// Adds layers to a graph, numbering parameters.
struct Builder {
  Graph graph;
  int parameters = 0;

  int image(Shape shape, DType dtype = DType::f32) { return graph.add_input(shape, dtype); }
  int channels(int v) const { return static_cast<int>(graph.shape(v)[1]); }
  int parameter(const Shape& shape) { return graph.add_parameter(parameters++, shape); }
  int add(OpPtr op, std::vector<int> inputs) {
    const std::string name = std::string(op->type()) + std::to_string(graph.nodes().size());
    return graph.add(std::move(op), std::move(inputs), name)[0];
  }
  int convolution(int x, int64_t filters, int64_t kernel = 3,
                  ops::Convolution2dParams params = {.padding = same_padding}) {
    const int w = parameter({filters, graph.shape(x)[1] / params.groups, kernel, kernel});
    const int b = parameter({filters});
    return add(ops::make_convolution2d(params, true), {x, w, b});
  }
  int normalization(int x) {
    const int64_t c = graph.shape(x)[1];
    const int scale = parameter({c}), shift = parameter({c});
    return add(ops::make_batch_normalization(1e-5, true), {x, scale, shift});
  }
  int relu(int x) { return add(ops::make_relu(), {x}); }
  int pool(int x) { return add(ops::make_max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}), {x}); }
  int dense(int x, int64_t units) {
    const int w = parameter({units, graph.shape(x).without_batch().elements()});
    const int b = parameter({units});
    return add(ops::make_fully_connected(true), {x, w, b});
  }
  int loss(int scores) {
    const int labels = graph.add_input({graph.shape(scores)[0]}, DType::i32);
    return add(ops::make_cross_entropy(), {add(ops::make_softmax(), {scores}), labels});
  }
  int block(int x, int64_t filters) { return relu(normalization(convolution(x, filters))); }
  void expect_equal(std::vector<int> outputs, double tolerance = 1e-6) {
    std::vector<int> seeds;
    for (int v : outputs) seeds.push_back(graph.mark_output(v));
    expect_plan_equals_eager(graph, seeds, tolerance);
  }
};

TEST(Plan, AChainGivesWhatItsOpsGiveEagerly) {
  Builder b;
  int x = b.block(b.image({4, 3, 12, 12}), 16);
  x = b.block(b.pool(x), 32);
  b.expect_equal({b.loss(b.dense(b.pool(x), 10))});
}

TEST(Plan, OddChannelsAndGroupsGiveWhatTheirOpsGiveEagerly) {
  Builder b;
  int x = b.block(b.image({3, 2, 11, 7}), 9);
  x = b.relu(b.convolution(x, 12, 3, {.stride = {2, 1}, .padding = padding(1), .groups = 3}));
  x = b.add(ops::make_average_pooling2d({.pool = {3, 2}, .stride = {2, 2}}), {x});
  b.expect_equal({b.loss(b.dense(x, 10))});
}

TEST(Plan, AllOpsInOneGraphGiveWhatTheyGiveEagerly) {
  Builder b;
  const int pixels = b.image({5, 3, 9, 9}, DType::u8);
  int x = b.add(ops::make_normalize_images(),
                {pixels, b.graph.add_state(0, {3}), b.graph.add_state(1, {3})});
  x = b.block(x, 8);
  x = b.add(ops::make_dropout(0.3, 17), {x});
  const int left = b.relu(b.convolution(x, 5));
  x = b.add(ops::make_concat(1), {x, left, x});
  x = b.add(ops::make_batch_normalization(1e-3, false),
            {x, b.parameter({21}), b.parameter({21}), b.graph.add_state(2, {21}),
             b.graph.add_state(3, {21})});
  const int all = b.add(ops::make_global_average_pooling2d(), {x});
  const int flat = b.add(ops::make_flatten(), {b.pool(x)});
  const int scores = b.dense(flat, 10);
  const int target = b.graph.add_input({5, 10}, DType::f32);
  const int error = b.add(ops::make_mean_squared_error(), {scores, target});
  b.expect_equal({b.loss(scores), error, b.dense(all, 3)});
}

TEST(Plan, AResidualValueWithSeveralReadersCollectsAllGradients) {
  Builder b;
  const int x = b.block(b.image({4, 3, 8, 8}), 16);
  const int inner = b.normalization(b.convolution(b.block(x, 16), 16));
  const int sum = b.relu(b.add(ops::make_add(), {inner, x, x}));
  const int wide = b.add(ops::make_concat(1), {sum, x, inner});
  b.expect_equal({b.loss(b.dense(b.pool(wide), 10))});
}

TEST(Plan, AParameterUsedTwiceInDifferentLayoutsGetsTheSumOfBothGradients) {
  Builder b;
  // The same weights on blocked 16 x 4 x 4 images and on plain rows of 256.
  const int image = b.block(b.image({4, 16, 4, 4}), 16);
  const int rows = b.graph.add_input({4, 256}, DType::f32);
  const int w = b.parameter({16, 256}), shift = b.parameter({16});
  const int first = b.add(ops::make_fully_connected(true), {image, w, shift});
  const int second = b.add(ops::make_fully_connected(true), {rows, w, shift});
  b.expect_equal({first, second});
}

TEST(Plan, ConvolutionsThatShareWeightsAddTheirGradients) {
  Builder b;
  const int w = b.parameter({16, 16, 3, 3}), shift = b.parameter({16});
  int x = b.block(b.image({2, 16, 16, 16}), 16);
  for (int64_t stride : {1, 2, 1}) {
    const ops::Convolution2dParams params{.stride = {stride, stride}, .padding = padding(1)};
    x = b.relu(b.add(ops::make_convolution2d(params, true), {x, w, shift}));
  }
  b.expect_equal({b.loss(b.dense(x, 10))});
}

TEST(Plan, AParameterReadTwiceByOneOpGetsBothGradients) {
  Builder b;
  const int w = b.parameter({3, 4});
  const int wide = b.add(ops::make_concat(1), {w, w});
  const int sum = b.add(ops::make_add(), {w, w, w});
  // One pass writes both gradients.
  const int both = b.parameter({3});
  const int norm =
      b.add(ops::make_batch_normalization(1e-5, true), {b.image({4, 3, 5, 5}), both, both});
  b.expect_equal({wide, sum, norm});
}

TEST(Plan, SeveralInputsJoin) {
  Builder b;
  const int left = b.block(b.image({4, 3, 8, 8}), 16);
  const int right = b.block(b.image({4, 1, 8, 8}, DType::f32), 16);
  const int sum = b.add(ops::make_add(), {left, right});
  b.expect_equal({b.loss(b.dense(sum, 10))});
}

TEST(Plan, SeveralOutputsSeedOneBackwardRun) {
  Builder b;
  const int x = b.block(b.image({4, 3, 8, 8}), 16);
  const int scores = b.dense(b.pool(x), 10);
  // One inner value with readers, one listed twice, and one at the end.
  b.expect_equal({x, scores, scores, b.loss(scores)});
}

TEST(Plan, ProbabilitiesMaySeedTheBackwardRunBesideTheirLoss) {
  Builder b;
  const int scores = b.dense(b.image({4, 6, 1, 1}), 10);
  const int probabilities = b.add(ops::make_softmax(), {scores});
  const int labels = b.graph.add_input({4}, DType::i32);
  const int loss = b.add(ops::make_cross_entropy(), {probabilities, labels});
  b.expect_equal({probabilities, loss}, 2e-6);
}

TEST(Plan, OutputsWithoutASeedHaveNoPartInGradients) {
  Builder b;
  const int x = b.block(b.image({4, 3, 8, 8}), 16);
  const int unused = b.dense(x, 7);
  b.graph.mark_output(unused);
  const int seed = b.graph.mark_output(b.dense(b.pool(x), 10));
  expect_plan_equals_eager(b.graph, {seed});
}

TEST(Plan, UnusedParametersAndInputsHaveGradientsOfZero) {
  Builder b;
  b.image({4, 1, 8, 8});  // input 0 and parameter 0 are not read
  b.parameter({5});
  const int seed = b.graph.mark_output(b.dense(b.image({4, 1, 8, 8}), 3));
  const Values values = random_values(b.graph, 3);
  Planned planned(b.graph, values, {seed});
  for (int round = 0; round < 2; ++round) {
    const Result result = planned(b.graph, values, {seed});
    EXPECT_EQ(result.parameters[0].values, std::vector<double>(5, 0));
    EXPECT_EQ(result.inputs[0].values, std::vector<double>(4 * 8 * 8, 0));
  }
}

TEST(Plan, WithoutGradientsOnlyTheForwardRunIsThere) {
  Builder b;
  const int x = b.block(b.image({4, 3, 8, 8}), 16);
  b.graph.mark_output(b.dense(x, 10));
  expect_plan_equals_eager(b.graph, {});
}

// Two shard sizes: the second plan uses the gradient layout that the first one chose.
TEST(Plan, AnotherBatchSizeWritesGradientsInTheGivenLayout) {
  const auto build = [](int64_t n) {
    Builder b;
    const int x = b.block(b.block(b.image({n, 3, 8, 8}), 16), 24);
    b.graph.mark_output(b.dense(b.pool(x), 10));
    return b.graph;
  };
  const Graph large = build(16), small = build(5);
  const Values values = random_values(small, 11);
  const Planned first(large, random_values(large, 11), {0});
  const GradientLayout layout = first.plan->gradient_layout();
  Planned own(small, values, {0}), given(small, values, {0}, &layout);
  const Result expected = own(small, values, {0}), result = given(small, values, {0});
  ASSERT_EQ(given.plan->gradient_layout().bytes, layout.bytes);
  for (size_t p = 0; p < layout.entries.size(); ++p) {
    EXPECT_EQ(given.plan->gradient_layout().entries[p].spec, layout.entries[p].spec);
    EXPECT_LE(optest::relative_error(result.parameters[p], expected.parameters[p], 1), 1e-6) << p;
  }
}

TEST(Plan, RunsOfOnePlanDoNotDisturbEachOther) {
  Builder b;
  const int x = b.block(b.image({4, 3, 8, 8}), 16);
  b.graph.mark_output(b.loss(b.dense(b.pool(x), 10)));
  const Values values = random_values(b.graph, 5);
  Values other = random_values(b.graph, 6);
  other.parameters = values.parameters;
  Planned planned(b.graph, values, {0});
  const Result expected = planned(b.graph, values, {0});
  PlanRun second(planned.plan, *planned.packed, {});
  std::memcpy(second.input(0), other.inputs[0].raw(), other.inputs[0].bytes());
  std::memcpy(second.input(1), other.inputs[1].raw(), other.inputs[1].bytes());
  std::fill_n(second.output_gradient(0), 4, 1.0f);
  second.forward({});
  const Result again = planned(b.graph, values, {0});  // between the other's forward and backward
  second.backward({});
  for (size_t p = 0; p < expected.parameters.size(); ++p) {
    EXPECT_EQ(again.parameters[p].values, expected.parameters[p].values) << p;
  }
}

// Notes which passes run.
struct Passes : PassWatch {
  explicit Passes(const Plan& plan) : all(plan.passes()) {}
  void passed(size_t pass) override { names += all[pass].name + "; "; }
  const std::vector<PlanPass> all;
  std::string names;
};

TEST(Plan, ABackwardRunComputesWhatIsAskedFor) {
  Builder b;
  const int x = b.image({4, 6});
  b.parameter({3});  // which nothing reads
  b.graph.mark_output(b.dense(b.add(ops::make_tanh(), {b.dense(x, 5)}), 2));
  const Values values = random_values(b.graph, 5);
  PlanOptions options;
  options.gradients = options.input_gradients = true;
  options.differentiated = {0};
  std::vector<Shape> shapes;
  for (const Tensor& parameter : values.parameters) shapes.push_back(parameter.shape());
  const auto plan = std::make_shared<const Plan>(b.graph, shapes, options);
  PackedParameters packed(values.parameters);
  PlanRun run(plan, packed, {});
  const auto of_input = [&] {
    return std::vector<float>(run.input_gradient(0), run.input_gradient(0) + 4 * 6);
  };
  const auto of_parameters = [&] {
    return std::vector<std::byte>(run.gradients(), run.gradients() + plan->gradient_layout().bytes);
  };
  const auto passes_for = [&](const BackwardResults& results) {
    // Results of an earlier call do not count.
    std::memset(run.gradients(), 0xff, plan->gradient_layout().bytes);
    std::memset(const_cast<float*>(run.input_gradient(0)), 0xff, 4 * 6 * sizeof(float));
    std::memcpy(run.input(0), values.inputs[0].raw(), values.inputs[0].bytes());
    std::fill_n(run.output_gradient(0), 4 * 2, 1.0f);
    run.forward({});
    Passes passes(*plan);
    run.backward({}, &passes, results);
    return passes.names;
  };
  std::vector<bool> reached(shapes.size(), true);
  reached[0] = false;
  EXPECT_EQ(plan->reached_parameters(), reached);

  const std::string all = passes_for({});
  const auto input = of_input();
  const auto parameters = of_parameters();
  EXPECT_NE(all.find("unused parameter: zero"), std::string::npos) << all;
  const std::string for_values = passes_for({.parameters = false, .zeros = false});
  EXPECT_EQ(of_input(), input);
  EXPECT_NE(of_parameters(), parameters);
  const std::string for_parameters = passes_for({.values = false});
  EXPECT_EQ(of_parameters(), parameters);
  const auto count = [](const std::string& names) {
    return std::count(names.begin(), names.end(), ';');
  };
  EXPECT_LT(count(for_values), count(for_parameters)) << for_values;
  EXPECT_LT(count(for_parameters), count(all)) << for_parameters;
  const std::string without_zeros = passes_for({.zeros = false});
  EXPECT_EQ(without_zeros.find("unused parameter: zero"), std::string::npos) << without_zeros;
  EXPECT_EQ(count(without_zeros), count(all) - 1);
  EXPECT_EQ(passes_for({false, false, false}), "");
}

// ---- Layout flows: conversions are counted ----

std::string conversions(const Plan& plan) {
  std::string names;
  for (const auto& step : plan.state().steps) {
    if (step.conversion) names += step.name + "; ";
  }
  return names;
}

Plan training_plan(Builder& b, int loss, bool input_gradients = false,
                   DType precision = DType::f32) {
  PlanOptions options;
  options.precision = precision;
  options.gradients = true;
  options.input_gradients = input_gradients;
  options.differentiated = {b.graph.mark_output(loss)};
  std::vector<Shape> shapes(static_cast<size_t>(b.parameters));
  for (const auto& value : b.graph.values()) {
    if (value.source == Graph::Source::parameter) {
      shapes[static_cast<size_t>(value.slot)] = value.shape;
    }
  }
  return Plan(b.graph, shapes, options);
}

// Whether this processor's kernels use images in lanes: see docs/design.md.
int image_input(Builder& b, int64_t n) {
  return b.add(
      ops::make_normalize_images(),
      {b.image({n, 3, 32, 32}, DType::u8), b.graph.add_state(0, {3}), b.graph.add_state(1, {3})});
}

TEST(PlanLayouts, ChainsOfConvolutionsReorderNothingInside) {
  // 16 images in the lanes of vectors, or blocks of channels.
  for (const int64_t n : {16, 12}) {
    Builder b;
    int x = image_input(b, n);
    for (int64_t width : {16, 32, 48}) {
      for (int k = 0; k < 2; ++k) x = b.block(x, width);
      x = b.pool(x);
    }
    const Plan plan = training_plan(b, b.loss(b.dense(x, 10)));
    // The fully connected layer returns its gradient as rows: one conversion at the end of the
    // chain. If images lie in lanes, this layer reads rows, and the first convolution does not.
    const bool lanes = n == 16 && kernels::cpu::lanes_are_chosen();
    const std::string end = "batch_normalization19+relu20+max_pooling2d21: layout; ";
    EXPECT_EQ(conversions(plan),
              lanes ? "convolution2d1: layout; fully_connected22: layout; " + end : end);
  }
}

int network_of_depth_one(Builder& b) {
  int x = image_input(b, 16);
  for (int64_t width : {16, 32, 64}) {
    x = b.block(x, width);
    if (width < 64) x = b.pool(x);
  }
  x = b.add(ops::make_average_pooling2d({.pool = {8, 8}, .stride = {8, 8}}), {x});
  return b.loss(b.dense(x, 10));
}

TEST(PlanLayouts, TheNetworkOfDepthOneReordersAtItsEnds) {
  Builder b;
  const int loss = network_of_depth_one(b);
  const Plan plan = training_plan(b, loss);
  EXPECT_EQ(plan.reorders(), kernels::cpu::lanes_are_chosen() ? 3 : 1) << conversions(plan);
}

TEST(PlanLayouts, InBf16OnlyTheEndsBecomeAnotherType) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  Builder b;
  const int loss = network_of_depth_one(b);
  const Plan plan = training_plan(b, loss, false, DType::bf16);
  // The image, the scores' gradient, and rows to blocks before the average; or in lanes, rows
  // before the scores and back.
  EXPECT_EQ(plan.reorders(), kernels::cpu::lanes_are_chosen() ? 4 : 3) << conversions(plan);
}

TEST(PlanLayouts, ResidualBlocksReorderNothingInside) {
  Builder b;
  int x = b.block(image_input(b, 16), 16);
  for (int64_t width : {16, 32}) {
    const int64_t stride = width / 16;
    const ops::Convolution2dParams params{.stride = {stride, stride}, .padding = padding(1)};
    const int first = b.relu(b.normalization(b.convolution(x, width, 3, params)));
    const int second = b.normalization(b.convolution(first, width));
    const int skip =
        stride == 1 ? x : b.normalization(b.convolution(x, width, 1, {.stride = {stride, stride}}));
    x = b.relu(b.add(ops::make_add(), {second, skip}));
  }
  x = b.add(ops::make_global_average_pooling2d(), {x});
  const Plan plan = training_plan(b, b.loss(b.dense(x, 10)));
  // In lanes: the images, the pooling's result, and its gradient.
  EXPECT_EQ(plan.reorders(), kernels::cpu::lanes_are_chosen() ? 3 : 1) << conversions(plan);
}

// Depthwise and pointwise convolutions, as in small networks for phones.
TEST(PlanLayouts, SeparableConvolutionsReorderNothingInside) {
  Builder b;
  int x = b.block(image_input(b, 16), 16);
  for (int64_t width : {32, 48, 64}) {
    const int64_t channels = b.channels(x), stride = width == 48 ? 2 : 1;
    x = b.relu(b.normalization(b.convolution(
        x, channels, 3, {.stride = {stride, stride}, .padding = padding(1), .groups = channels})));
    x = b.relu(b.normalization(b.convolution(x, width, 1)));
  }
  x = b.add(ops::make_global_average_pooling2d(), {x});
  const Plan plan = training_plan(b, b.loss(b.dense(x, 10)));
  EXPECT_EQ(plan.reorders(), kernels::cpu::lanes_are_chosen() ? 3 : 1) << conversions(plan);
}

// A value with the same bytes as its source shares the source's memory and needs no pass, except
// for inputs and outputs, which the caller writes and reads.
TEST(Plan, ExistingBytesAreNotCopied) {
  for (const int64_t n : {16, 3}) {
    Builder b;
    const int image = b.image({n, 3, 6, 6});
    const int x = b.block(image, 5);
    const int rows = b.add(ops::make_flatten(), {x});
    const int twice = b.add(ops::make_add(), {x, x});
    const int of_input = b.add(ops::make_flatten(), {image});
    b.expect_equal({x, rows, twice, b.dense(rows, 4), of_input});
  }
  Builder b;
  const int x = b.block(b.image({3, 3, 6, 6}), 5);
  const int sum = b.add(ops::make_add(), {x, b.relu(x)});
  const Plan plan = training_plan(b, b.loss(b.dense(b.add(ops::make_flatten(), {sum}), 4)));
  for (const PlanPass& pass : plan.passes()) {
    if (pass.name.ends_with(": layout")) continue;
    EXPECT_EQ(pass.name.find("flatten"), std::string::npos) << pass.name;
    EXPECT_TRUE(!pass.backward || pass.name.find("add") == std::string::npos) << pass.name;
  }
}

TEST(Plan, WhatTheBackEndCannotDoIsRefusedWithTheNameOfTheOp) {
  Builder b;
  const int64_t many = int64_t{1} << 33;
  const int x = b.image({1, many, 8, 8});
  const int w = b.parameter({1, many, 1, 1});
  b.graph.mark_output(b.graph.add(ops::make_convolution2d({}, false), {x, w}, "wide")[0]);
  try {
    Plan plan(b.graph, {Shape{1, many, 1, 1}}, {});
    ADD_FAILURE() << "it was compiled";
  } catch (const Unsupported& e) {
    const std::string message = e.what();
    EXPECT_EQ(message.find("[wide] [kernels] oneDNN does not support"), 0u) << message;
    EXPECT_NE(message.find("8589934592"), std::string::npos) << message;
  }
}

TEST(Plan, ErrorsOfOnednnComeOutAsUnsupported) {
  // A layout change between tensors of different shapes.
  const TensorSpec from{Shape{2, 3}, DType::f32, nullptr}, to{Shape{3, 2}, DType::f32, nullptr};
  try {
    kernels::table_for({}).reorder(from, to);
    ADD_FAILURE() << "it was made";
  } catch (const Unsupported& e) {
    const std::string message = e.what();
    EXPECT_EQ(message.find("[kernels] oneDNN cannot do this change of layout: "), 0u) << message;
  }
}

}  // namespace
}  // namespace lockstep
