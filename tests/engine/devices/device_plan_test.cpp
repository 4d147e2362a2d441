// Plans on a stand-in for a device. The bits are the CPU's.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/engine/plan/comparison.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using namespace plantest;

// Convolutions, one of them used twice, normalization and dropout.
struct Model {
  Graph graph;
  std::vector<int> seeds;

  Model() {
    const ops::Convolution2dParams same{.padding = same_padding};
    const auto with_bias = ops::make_convolution2d(same, true);
    const auto without = ops::make_convolution2d(same, false);
    int y = graph.add_input({6, 3, 8, 8}, DType::f32);
    y = graph.add(with_bias,
                  {y, graph.add_parameter(0, {16, 3, 3, 3}), graph.add_parameter(1, {16})},
                  "first")[0];
    const auto normalized =
        graph.add(ops::make_batch_normalization(1e-5, true),
                  {y, graph.add_parameter(2, {16}), graph.add_parameter(3, {16})}, "normalization");
    y = graph.add(ops::make_relu(), {normalized[0]}, "relu")[0];
    const int shared = graph.add_parameter(4, {16, 16, 3, 3});
    graph.add_parameter(5, {7});  // not used
    y = graph.add(without, {y, shared}, "second")[0];
    y = graph.add(without, {y, shared}, "third")[0];
    y = graph.add(ops::make_dropout(0.5, 9), {y}, "dropout")[0];
    const int state = graph.add_state(0, {6, 16, 8, 8});
    y = graph.add(ops::make_add(), {y, state}, "sum")[0];
    seeds = {graph.mark_output(y)};
    graph.mark_output(normalized[1]);
  }
};

Values values_of(const Model& model) {
  Values values = random_values(model.graph, 3);
  values.step = {.seed = 5, .iteration = 1, .first_row = 2};
  return values;
}

void expect_same_bits(const Result& a, const Result& b) {
  const auto compare = [](const std::vector<Array>& x, const std::vector<Array>& y) {
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i].values, y[i].values) << "number " << i;
  };
  compare(a.outputs, b.outputs);
  compare(a.parameters, b.parameters);
  compare(a.inputs, b.inputs);
}

TEST(DevicePlan, GivesTheBitsOfTheCpu) {
  const FakeDevice fake;
  const Model model;
  const Values here = values_of(model), there = moved(here, fake);
  const Result expected = Planned(model.graph, here, model.seeds)(model.graph, here, model.seeds);
  Planned planned(model.graph, there, model.seeds);
  EXPECT_EQ(planned.plan->device(), fake.device());
  for (int round = 0; round < 3; ++round) {
    expect_same_bits(planned(model.graph, there, model.seeds), expected);
  }
}

TEST(DevicePlan, GivesWhatItsOpsGiveEagerly) {
  const FakeDevice fake;
  const Model model;
  expect_plan_equals_eager(model.graph, model.seeds, 1e-6, fake);
}

TEST(DevicePlan, IsRecordedOnceAndRepeatedWithNewSteps) {
  const FakeDevice fake;
  const Model model;
  Values here = values_of(model);
  Planned on_cpu(model.graph, here, model.seeds);
  Planned planned(model.graph, moved(here, fake), model.seeds);
  for (uint64_t round = 0; round < 40; ++round) {
    SCOPED_TRACE("iteration " + std::to_string(round));
    here.step.iteration = round;
    expect_same_bits(planned(model.graph, moved(here, fake), model.seeds),
                     on_cpu(model.graph, here, model.seeds));
    EXPECT_EQ(fake.recordings(), round == 0 ? 0 : 2);
    EXPECT_EQ(fake.replays(), 2 * static_cast<int>(round));
  }
}

TEST(DevicePlan, RunsWithoutWaitingInBetween) {
  const FakeDevice fake;
  const Model model;
  Values here = values_of(model);
  Planned planned(model.graph, moved(here, fake), {});
  Planned on_cpu(model.graph, here, {});
  const size_t bytes = here.inputs[0].bytes(), size = 6 * 16 * 8 * 8;
  constexpr int rounds = 40;  // more steps than can wait to be copied
  std::vector<std::vector<float>> results(rounds, std::vector<float>(size, -1));
  for (int round = 0; round < rounds; ++round) {
    planned.run->set_input(0, here.inputs[0].raw(), bytes);
    planned.run->forward({.seed = 5, .iteration = static_cast<uint64_t>(round)});
    planned.run->get_output(0, results[static_cast<size_t>(round)].data(), size * sizeof(float));
  }
  EXPECT_EQ(results[rounds - 1][0], -1) << "is there only after synchronize()";
  planned.run->synchronize();
  for (int round = 0; round < rounds; ++round) {
    on_cpu.run->set_input(0, here.inputs[0].raw(), bytes);
    on_cpu.run->forward({.seed = 5, .iteration = static_cast<uint64_t>(round)});
    const std::vector<float> expected(on_cpu.run->output(0), on_cpu.run->output(0) + size);
    EXPECT_EQ(results[static_cast<size_t>(round)], expected) << "iteration " << round;
  }
}

TEST(DevicePlan, RunsOnDevicesWithoutRecordings) {
  const FakeDevice fake(0, {.records = false});
  const Model model;
  const Values here = values_of(model);
  const Result expected = Planned(model.graph, here, model.seeds)(model.graph, here, model.seeds);
  Planned planned(model.graph, moved(here, fake), model.seeds);
  for (int round = 0; round < 3; ++round) {
    expect_same_bits(planned(model.graph, moved(here, fake), model.seeds), expected);
  }
  EXPECT_EQ(fake.recordings() + fake.replays(), 0);
}

TEST(DevicePlan, PackedCopiesFollowTheParameters) {
  const FakeDevice fake;
  const Model model;
  Values here = values_of(model);
  const Values there = moved(here, fake);
  Planned planned(model.graph, there, model.seeds);
  planned(model.graph, there, model.seeds);
  const Tensor other = optest::tensor_of(optest::random_array({16, 16, 3, 3}, 77));
  here.parameters[4] = other;
  there.parameters[4].copy_from(other);
  planned.packed->pack_all();
  expect_same_bits(planned(model.graph, there, model.seeds),
                   Planned(model.graph, here, model.seeds)(model.graph, here, model.seeds));
}

TEST(DevicePlan, MemoryIsFreedWithTheRun) {
  const FakeDevice fake;
  const Model model;
  const Values there = moved(values_of(model), fake);
  const size_t before = allocator_statistics(fake).in_use;
  {
    Planned planned(model.graph, there, model.seeds);
    planned(model.graph, there, model.seeds);
    EXPECT_GT(allocator_statistics(fake).in_use, before);
  }
  EXPECT_EQ(allocator_statistics(fake).in_use, before);
}

TEST(DevicePlan, RefusesParametersOnAnotherDevice) {
  const FakeDevice fake;
  const Model model;
  const Values here = values_of(model);
  PackedParameters packed(here.parameters);
  const auto plan = std::make_shared<Plan>(
      model.graph, std::vector<Shape>{{16, 3, 3, 3}, {16}, {16}, {16}, {16, 16, 3, 3}, {7}},
      PlanOptions{}, fake);
  try {
    PlanRun(plan, packed, {});
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[plan] the parameters are on cpu, but the plan runs on cuda:0");
  }
  EXPECT_THROW(PackedParameters({here.parameters[0], here.parameters[1].to(fake)}),
               InvalidArgument);
}

TEST(Plan, CopyingAccessorsCheckTheSize) {
  const Model model;
  const Values here = values_of(model);
  Planned planned(model.graph, here, model.seeds);
  float value = 0;
  try {
    planned.run->set_input(0, &value, sizeof value);
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[plan] input 0 has 4608 bytes, received 4");
  }
  EXPECT_THROW(planned.run->get_output(1, &value, 4), InvalidArgument);
  EXPECT_THROW(planned.run->set_output_gradient(1, &value, 4),
               InvalidArgument);  // not one of the outputs with a gradient
}

}  // namespace
}  // namespace lockstep
