// Runs of several plans that compute in turn in one memory.
#include "lockstep/engine/plan/runs_in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep::in_turn {
namespace {

// Reads states (the normalization's), reuses its arena, and computes gradients.
Network network_of_turns() {
  Network network{lockstep::image_input({.height = 6, .width = 6, .channels = 2}),
                  lockstep::convolution2d({.filters = 9, .kernel = {3, 3}}),
                  lockstep::batch_normalization(),
                  lockstep::relu(),
                  lockstep::fully_connected({.units = 5}),
                  lockstep::tanh()};
  network.initialize(3);
  return network;
}

std::shared_ptr<const Plan> plan_of(const Network& network, int64_t rows,
                                    const GradientLayout* layout) {
  LoweredNetwork lowered = network.lower(rows, {.training = false, .inputs = {DType::f32}});
  PlanOptions options;
  options.gradients = true;
  options.gradient_layout = layout;
  options.differentiated = {lowered.graph.mark_output(lowered.outputs.at(0))};
  return std::make_shared<const Plan>(lowered.graph, network.parameter_shapes(), options);
}

// The outputs, then the gradients, of inputs that `which` determines.
std::vector<float> computed(PlanRun& run, int64_t rows, int which) {
  std::vector<float> x(static_cast<size_t>(rows * 72));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>((i * 7 + static_cast<size_t>(which) * 13) % 31) * 0.1f - 1;
  }
  run.set_input(0, x.data(), x.size() * sizeof(float));
  run.forward({});
  std::vector<float> found(run.output(0), run.output(0) + rows * 5);
  std::fill_n(run.output_gradient(0), rows * 5, 0.5f);
  run.backward({});
  const size_t before = found.size(), bytes = run.plan().gradient_layout().bytes;
  found.resize(before + bytes / sizeof(float));
  std::memcpy(found.data() + before, run.gradients(), bytes);
  return found;
}

TEST(RunsInTurn, HaveTheBitsOfRunsOfTheirOwnInTheMemoryOfOne) {
  Network network = network_of_turns();
  std::map<int64_t, std::shared_ptr<const Plan>> plans;
  for (const int64_t rows : {16, 3, 64, 1, 17}) {  // grows after the first, and later not
    const GradientLayout* const first = plans.empty() ? nullptr : &plans.at(16)->gradient_layout();
    plans[rows] = plan_of(network, rows, first);
  }
  RunsInTurn turns(network.packed(), network.state_pointers());
  EXPECT_EQ(turns.bytes(), 0u);
  for (const int64_t rows : {16, 3, 64, 1, 17}) {
    turns.add(plans.at(rows));
    turns.add(plans.at(rows));
    const std::vector<float> own = [&] {
      PlanRun run(plans.at(rows), network.packed(), network.state_pointers());
      network.packed().pack_all();
      return computed(run, rows, 1);
    }();
    EXPECT_EQ(computed(turns.of(*plans.at(rows)), rows, 1), own);
  }
  const PlanSizes largest = sizes_of(*plans.at(64));
  EXPECT_EQ(turns.bytes(), largest.all());
  for (int which = 2; which < 5; ++which) {
    for (const auto& [rows, plan] : plans) {
      PlanRun run(plan, network.packed(), network.state_pointers());
      network.packed().pack_all();
      EXPECT_EQ(computed(turns.of(*plan), rows, which), computed(run, rows, which)) << rows;
    }
  }
  EXPECT_THROW(turns.of(*plan_of(network, 2, nullptr)), Error);
}

}  // namespace
}  // namespace lockstep::in_turn
