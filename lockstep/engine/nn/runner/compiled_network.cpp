#include "lockstep/engine/nn/runner/compiled_network.h"

#include <utility>

namespace lockstep {

CompiledNetwork compile(const Network& network, LoweredNetwork lowered, PlanOptions options) {
  CompiledNetwork compiled;
  options.total_output_gradients = options.gradients && lowered.outputs.size() > 1;
  for (const int value : lowered.outputs) {
    compiled.outputs.push_back(lowered.graph.shape(value));
    options.differentiated.push_back(lowered.graph.mark_output(value));
  }
  for (const Graph::Node& node : lowered.graph.nodes()) {
    if (compiled.draws.empty() && node.op->draws_random_numbers()) compiled.draws = node.name;
  }
  // Of the outputs alone.
  if (options.gradients) {
    compiled.function =
        std::make_shared<NetworkFunction>(lowered.graph, options.precision, network.device());
  }
  compiled.statistics = lowered.mark_statistics();
  compiled.carries = lowered.mark_carries();
  compiled.lengths = lowered.length_inputs();
  compiled.combined = std::move(lowered.combined);
  compiled.earlier = lowered.earlier;
  compiled.plan = std::make_shared<const Plan>(lowered.graph, network.parameter_shapes(), options,
                                               network.device());
  return compiled;
}

}  // namespace lockstep
