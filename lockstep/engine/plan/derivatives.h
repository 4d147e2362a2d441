// Which derivatives a plan computes, and the layout of the gradients. The answers depend on a graph
// and its kernels alone, not on buffers. Thread-safe.
#pragma once

#include <span>
#include <vector>

#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// Whether other values are computed from output k. Its total derivative then differs from its
// output gradient. False without PlanOptions::total_output_gradients.
bool has_total_output_gradient(const Graph& graph, const PlanOptions& options, int k);

// Marks the values whose derivatives are needed: values computed from a parameter or from an input
// whose gradient is requested, and outputs with a total derivative.
std::vector<bool> values_with_derivatives(const Graph& graph, const PlanOptions& options);

// The layout in which the kernels write the gradients of `parameters`. `kernels`: by node.
// `wanted`: by value. Throws Error if the gradients cannot be allocated.
GradientLayout gradient_layout_of(const Graph& graph, std::span<const kernels::Kernel> kernels,
                                  const std::vector<Shape>& parameters,
                                  const std::vector<bool>& wanted);

// Throws Unsupported if no backward pass of a node computes the derivative with respect to an
// input. The result would otherwise silently be zero.
void check_differentiable(const Graph::Node& node, const kernels::Kernel& kernel, size_t input);

// Whether all kernels promise Kernel::rows_apart, all passes for parameters, and no others, have
// sums over shards, and each of the `parameters` is the operand of exactly one op.
bool sums_over_shards_possible(const Graph& graph, std::span<const kernels::Kernel> kernels,
                               size_t parameters);

}  // namespace lockstep
