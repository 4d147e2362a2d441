// A network compiled for given shapes, for eager runs, custom loops and predictions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/engine/plan/recorded_gradients.h"

namespace lockstep {

// What a run needs to know (recorded_run.h). The plan's inputs are those of the network, then the
// others that are named here; its outputs are those of the network, then statistics and carries.
struct CompiledNetwork {
  std::shared_ptr<const Plan> plan;
  std::vector<Shape> outputs;  // with all observations
  std::vector<MovingStatistics> statistics;
  std::vector<Carry> carries;
  std::vector<int> lengths;  // numbers of the inputs for lengths
  std::vector<CombinedSequences> combined;
  int earlier = -1;   // number of the input for the numbers of earlier steps; -1: none
  std::string draws;  // first layer that draws random numbers; "": none does
  std::shared_ptr<const NetworkFunction> function;  // with gradients: for further derivatives
};

// `options`: of the plan; what follows from the lowered network is set here.
CompiledNetwork compile(const Network& network, LoweredNetwork lowered, PlanOptions options);

}  // namespace lockstep
