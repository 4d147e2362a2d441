// Instructions that plans combine to expressions: fewer passes, and the bits of the ops one by one.
#include "lockstep/engine/plan/expressions.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/engine/ops/expression.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/plan/comparison.h"

namespace lockstep {
namespace {

using plantest::expect_plan_equals_eager;

// A graph written with the functions that users call.
struct Written {
  Graph graph;
  GraphBuilder builder{graph, "layer"};

  Value input(const Shape& shape) { return {&builder, graph.add_input(shape, DType::f32)}; }
  Value parameter(int slot, const Shape& shape) {
    return {&builder, graph.add_parameter(slot, shape)};
  }
  int output(const Value& value) { return graph.mark_output(value.number()); }
  int reorders(const std::vector<Shape>& parameters) const {
    return Plan(graph, parameters, {}).reorders();
  }
  // Expects this number of passes, of the forward run or of both runs; with `or_fewer`, at most.
  void expect_passes(size_t most, bool backward, const std::vector<Shape>& parameters = {},
                     bool or_fewer = false) const {
    PlanOptions options;
    options.gradients = options.input_gradients = backward;
    if (backward) options.differentiated = {0};
    const Plan plan(graph, parameters, options);
    EXPECT_LE(plan.passes().size(), most) << plan.describe();
    EXPECT_TRUE(or_fewer || plan.passes().size() == most) << plan.describe();
  }
};

Value huber(const Value& x, const Value& y) {
  const Value distance = ops::abs(x - y);
  return ops::where(ops::less(distance, 1), ops::square(distance) * 0.5, distance - 0.5);
}

TEST(Expressions, ALossOfManyOpsIsOnePass) {
  Written w;
  const Value x = w.input({6, 40}), y = w.input({6, 40});
  w.output(ops::mean(huber(x, y), {1}));
  w.expect_passes(1, false);
  // Its gradient is computed from x and y again, in one pass for each of them.
  w.expect_passes(4, true, {}, true);
  expect_plan_equals_eager(w.graph, {0}, 0);
}

TEST(Expressions, AnExpensiveResultWithTwoReadersIsKept) {
  Written cheap, expensive;
  for (Written* const w : {&cheap, &expensive}) {
    const Value x = w->input({5, 7});
    const Value shared = w == &cheap ? x * 3 : ops::exp(x);
    const Value one = ops::mean(shared + 1, {1}), other = ops::mean(shared * 2, {1});
    w->output(one);
    w->output(other);
    expect_plan_equals_eager(w->graph, {0, 1}, 0);
  }
  cheap.expect_passes(2, false);
  expensive.expect_passes(3, false);
}

TEST(Expressions, ResultsOfTheGraphStay) {
  Written w;
  const Value x = w.input({4, 3});
  const Value between = x * 2;
  w.output(between);
  w.output(between + 1);
  w.expect_passes(2, false);
  expect_plan_equals_eager(w.graph, {0, 1}, 0);
}

TEST(Expressions, NumbersAndRepeatedValuesNeedNoPass) {
  Written w;
  const Value x = w.input({4, 3, 5}), scale = w.parameter(0, {3, 1});
  w.output(x * ops::broadcast_to(scale, {4, 3, 5}) + ops::broadcast_to(scale * 0 + 7, {4, 3, 5}));
  w.expect_passes(2, false, {{3, 1}}, true);
  expect_plan_equals_eager(w.graph, {0}, 0);
}

// Gates of a recurrent layer: slices of one product are read where they are.
TEST(Expressions, SlicesAreReadWhereTheyAre) {
  Written w;
  const Value x = w.input({6, 40}), c = w.input({6, 10});
  const auto gate = [&](int64_t k) { return ops::slice(x, {{}, {10 * k, 10 * k + 10}}); };
  const Value next = ops::exp(-gate(0)) * c + ops::exp(-gate(1)) * ops::sin(gate(2));
  w.output(ops::exp(-gate(3)) * ops::sin(next));
  w.expect_passes(1, false);
  expect_plan_equals_eager(w.graph, {0}, 0);
}

TEST(Expressions, AResultDoesNotOverwriteWhatIsReadInTwoWays) {
  Written w;
  const Value x = ops::sin(ops::sum(w.input({64, 48, 3}), {2}));  // memory of the plan
  w.output(ops::sum(x + ops::flip(x, {0}), {}) * 0.5);
  w.output(x * ops::slice(x, {{.step = -1}}));
  expect_plan_equals_eager(w.graph, {0, 1}, 0);
}

// A transposed input is copied, because its neighboring elements are apart in memory.
TEST(Expressions, TransposedValuesAreCopied) {
  Written w;
  const Value x = w.input({30, 40}), y = w.input({40, 30});
  w.output(ops::permute_dims(x, {1, 0}) * y);
  w.expect_passes(2, false);
  expect_plan_equals_eager(w.graph, {0}, 0);
}

// More than a kernel takes is cut.
TEST(Expressions, LongOnesAreCut) {
  Written chain;
  Value x = chain.input({3, 50});
  for (int i = 0; i < 300; ++i) x = i % 3 == 0 ? x * 0.75 : i % 3 == 1 ? x + 0.5 : ops::sin(x);
  chain.output(x);
  chain.expect_passes(8, false, {}, true);
  expect_plan_equals_eager(chain.graph, {0}, 0);

  Written wide;
  std::vector<Value> inputs;
  for (int i = 0; i < 40; ++i) inputs.push_back(wide.input({3, 5}));
  Value sum = inputs[0];
  for (int i = 1; i < 40; ++i) sum = sum + inputs[static_cast<size_t>(i)] * inputs[0];
  wide.output(sum);
  wide.expect_passes(8, false, {}, true);
  expect_plan_equals_eager(wide.graph, {0}, 0);
}

// Between convolutions, whose layout is blocked, with 3 channels padded to a whole block.
TEST(Expressions, KeepTheLayoutOfTheirInputs) {
  for (const int64_t channels : {3, 16}) {
    for (const bool keeps_zeros : {true, false}) {
      SCOPED_TRACE(std::to_string(channels) +
                   (keeps_zeros ? " channels, zeros stay" : " channels"));
      Written w;
      const Value x = w.input({2, channels, 9, 9});
      const Shape shape{channels, channels, 3, 3};
      const Value a = ops::convolution2d(x, w.parameter(0, shape), {}, {});
      const Value b =
          keeps_zeros ? ops::tanh(a) * ops::expm1(a) - a * 0.5 : ops::exp(a) * 0.5 + ops::cos(a);
      const Value y = ops::convolution2d(b, w.parameter(1, shape), {}, {});
      w.output(y);
      expect_plan_equals_eager(w.graph, {0}, 1e-6);
      // No conversion between the convolutions, unless padding would not stay zero.
      Written without;
      const Value image = without.input({2, channels, 9, 9});
      const Value first = ops::convolution2d(image, without.parameter(0, shape), {}, {});
      without.output(ops::convolution2d(first, without.parameter(1, shape), {}, {}));
      if (keeps_zeros) {
        EXPECT_EQ(w.reorders({shape, shape}), without.reorders({shape, shape}));
      }
    }
  }
}

TEST(Expressions, ZerosThatStayAreKnown) {
  using enum kernels::Opcode;
  EXPECT_TRUE(ops::keeps_zeros({{{multiply, 0, 1}}}, 2));
  EXPECT_TRUE(ops::keeps_zeros({{{constant, 0, 0, 0, 3}, {multiply, 0, 1}}}, 1));
  EXPECT_FALSE(ops::keeps_zeros({{{constant, 0, 0, 0, INFINITY}, {multiply, 0, 1}}}, 1));
  EXPECT_FALSE(ops::keeps_zeros({{{divide, 0, 1}}}, 2));
  EXPECT_FALSE(ops::keeps_zeros({{{exp, 0}}}, 1));
  EXPECT_FALSE(ops::keeps_zeros({{{pow, 0, 1}}}, 2));
}

TEST(Expressions, ReadNumbersThatThePlanComputes) {
  Written w;
  const Value x = w.input({3, 4});
  w.output(ops::tril(x * ops::linspace(x, 0, 1, 4)) + ops::expand_dims(ops::arange(x, 0, 3), 1));
  expect_plan_equals_eager(w.graph, {0}, 0);
}

// Random graphs: values with several readers, broadcast operands, numbers, sums of derivatives.
TEST(Expressions, RandomGraphsHaveTheBitsOfTheirOps) {
  const Shape shapes[] = {{4, 3, 5}, {3, 1}, {5}, {1, 3, 5}, {4, 3, 5}, {}};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    Written w;
    std::vector<Value> values;
    for (int i = 0; i < 3; ++i) values.push_back(w.input(shapes[below(6)]));
    for (int i = 0; i < 2; ++i) values.push_back(w.parameter(i, shapes[below(6)]));
    const auto any = [&] { return values[below(values.size())]; };
    for (size_t i = 0, steps = 2 + below(25); i < steps; ++i) {
      switch (below(13)) {
        case 0:
          values.push_back(any() + any());
          break;
        case 1:
          values.push_back(ops::sin(any()) * any());
          break;
        case 2:
          values.push_back(any() - 0.5);
          break;
        case 3:
          values.push_back(ops::maximum(any(), any()));
          break;
        case 4:
          values.push_back(ops::sin(any()));
          break;
        case 5:
          values.push_back(ops::where(ops::less(any(), any()), any(), any()));
          break;
        case 6:
          values.push_back(ops::mean(any(), {}, true) / 2);
          break;
        case 7:
          values.push_back(ops::square(any()) * 0.125);
          break;
        case 8:
          values.push_back(ops::broadcast_to(any() * 0.5, {4, 3, 5}));
          break;
        case 9:
          values.push_back(ops::sum(ops::broadcast_to(any(), {4, 3, 5}), {0}) * 0.25);
          break;
        case 10:
          values.push_back(ops::slice(ops::broadcast_to(any() * 2, {4, 3, 5}),
                                      {{.step = -1}, {.start = 1, .stop = 2}}));
          break;
        case 11:
          values.push_back(
              ops::permute_dims(ops::broadcast_to(ops::sin(any()), {4, 3, 5}), {2, 1, 0}));
          values.back() = ops::sum(values.back(), {0}) * 0.5;
          values.back() = ops::permute_dims(ops::expand_dims(values.back(), 0), {2, 1, 0});
          break;
        default:
          values.push_back(ops::exp(ops::minimum(any(), 1)));
      }
    }
    Value total = ops::broadcast_to(values.back(), {4, 3, 5});
    for (const Value& value : values) total = total + value * 0.5;
    w.output(total);
    if (below(2) == 0) w.output(any());
    expect_plan_equals_eager(w.graph, {0}, 0);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep
