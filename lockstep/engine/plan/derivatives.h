// Which derivatives a plan computes, and the layout of the gradients. The answers depend on a graph
// and its kernels alone, not on buffers. Thread-safe.
#pragma once

#include <span>
#include <vector>

#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// A graph with the ops that compute its derivatives, after its own ops. -1: none.
struct DifferentiatedGraph {
  Graph graph;
  size_t forward_nodes = 0;
  std::vector<int> seeds;                   // the values from which the backward run starts
  std::vector<int> parameter_gradients;     // by parameter
  std::vector<int> inputs;                  // by input: the value, if it gets a gradient
  std::vector<int> input_gradients;         // by input; -1: 0
  std::vector<int> total_output_gradients;  // by output
};

// Adds the derivatives that the options request.
DifferentiatedGraph differentiated(const Graph& graph, const PlanOptions& options,
                                   size_t parameters);

// The layout in which the kernels write the gradients of `parameters`. `kernels`: of the forward
// nodes. Throws Error if the gradients cannot be allocated.
GradientLayout gradient_layout_of(const DifferentiatedGraph& graph,
                                  std::span<const kernels::Kernel> kernels,
                                  const std::vector<Shape>& parameters);

// Places the gradients one after another, each at a multiple of 64 bytes. Those of the parameters
// with `true` come last and are not summed over shards. Throws Error if they cannot be allocated.
void arrange(GradientLayout& layout, const std::vector<bool>& left_out);

// Whether all kernels promise Kernel::rows_apart, all passes for parameters, and no others, have
// sums over shards, and each of the `parameters` is the operand of at most one op. `kernels`: by
// node.
bool sums_over_shards_possible(const DifferentiatedGraph& graph,
                               std::span<const kernels::Kernel> kernels, size_t parameters);

}  // namespace lockstep
