// Runs a graph as a plan, and op by op on the tape.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/plan/plan.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::plantest {

using reference::Array;

struct Values {
  std::vector<Tensor> inputs, parameters, states;
  RandomContext step = {};
};

// Copies the values to a device.
Values moved(const Values& values, Device device);

// Results of a run: outputs, and gradients of sum over outputs k in `seeds` of sum(weights[k] *
// output k).
struct Result {
  std::vector<Array> outputs;
  std::vector<Array> parameters, inputs;  // gradients; empty arrays for inputs without one
};

// Weights of the outputs in the scalar, one array for each seed.
std::vector<Array> seed_weights(const Graph& graph, const std::vector<int>& seeds);

Result run_eagerly(const Graph& graph, const Values& values, const std::vector<int>& seeds);

// The plan with its memory, on the device of the values.
struct Planned {
  std::shared_ptr<const Plan> plan;
  std::vector<Tensor> states;
  std::unique_ptr<PackedParameters> packed;
  std::unique_ptr<PlanRun> run;

  Planned(const Graph& graph, const Values& values, const std::vector<int>& seeds,
          const GradientLayout* layout = nullptr);
  // Sets inputs and output gradients, then runs forward and backward.
  Result operator()(const Graph& graph, const Values& values, const std::vector<int>& seeds);
};

// Random values for all inputs (labels below `classes` for i32), parameters and states.
Values random_values(const Graph& graph, uint64_t seed, int classes = 10);

// Expects that both ways agree within `tolerance` by norm, for all outputs and gradients.
void expect_plan_equals_eager(const Graph& graph, const std::vector<int>& seeds,
                              double tolerance = 1e-6, Device device = {});

}  // namespace lockstep::plantest
