#include "lockstep/engine/plan/derivatives.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/graph/differentiate.h"
#include "lockstep/engine/graph/kernel_gradient.h"

namespace lockstep {
namespace {

using Source = Graph::Source;

const Graph::Value& value_of(const Graph& graph, int v) {
  return graph.values()[static_cast<size_t>(v)];
}

// The value of which a backward pass computes the derivative.
int input_of(const Graph::Node& node, const kernels::Operand& write) {
  return node.inputs[static_cast<size_t>(write.index)];
}

// Whether other values are computed from output k. Its total derivative then differs from its
// output gradient. False without PlanOptions::total_output_gradients.
bool has_total_output_gradient(const Graph& graph, const PlanOptions& options, int k) {
  const int value = graph.outputs()[static_cast<size_t>(k)];
  if (!options.total_output_gradients || value_of(graph, value).source != Source::computed) {
    return false;
  }
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end();
  });
}

}  // namespace

DifferentiatedGraph differentiated(const Graph& graph, const PlanOptions& options,
                                   size_t parameters) {
  DifferentiatedGraph result;
  result.graph = graph;
  result.forward_nodes = graph.nodes().size();
  result.parameter_gradients.assign(parameters, -1);
  result.inputs.assign(static_cast<size_t>(graph.inputs()), -1);
  result.input_gradients = result.inputs;
  result.total_output_gradients.assign(graph.outputs().size(), -1);
  if (!options.gradients) return result;
  std::vector<DerivativeSeed> seeds;
  for (const int k : options.differentiated) {
    const int value = graph.outputs()[static_cast<size_t>(k)];
    result.seeds.push_back(result.graph.add_output_gradient(k, graph.shape(value)));
    seeds.push_back({value, result.seeds.back()});
  }
  std::vector<int> wanted;
  std::vector<int*> results;  // where the derivatives go
  const auto want = [&](int value, int& derivative) {
    wanted.push_back(value);
    results.push_back(&derivative);
  };
  for (size_t v = 0; v < graph.values().size(); ++v) {
    const Graph::Value& value = graph.values()[v];
    const auto slot = static_cast<size_t>(value.slot);
    if (value.source == Source::parameter) {
      want(static_cast<int>(v), result.parameter_gradients.at(slot));
    } else if (value.source == Source::input && options.input_gradients &&
               (options.of_inputs.empty() || options.of_inputs.at(slot)) &&
               value.dtype == DType::f32) {
      result.inputs[slot] = static_cast<int>(v);
      want(static_cast<int>(v), result.input_gradients[slot]);
    }
  }
  for (const int k : options.differentiated) {
    if (!has_total_output_gradient(graph, options, k)) continue;
    const auto output = static_cast<size_t>(k);
    want(graph.outputs()[output], result.total_output_gradients[output]);
  }
  const std::vector<int> diffs = add_gradients(result.graph, seeds, wanted);
  for (size_t i = 0; i < diffs.size(); ++i) *results[i] = diffs[i];
  return result;
}

GradientLayout gradient_layout_of(const DifferentiatedGraph& differentiated,
                                  std::span<const kernels::Kernel> kernels,
                                  const std::vector<Shape>& parameters) {
  const Graph& graph = differentiated.graph;
  GradientLayout layout;
  layout.entries.resize(parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    layout.entries[p].spec = {parameters[p], DType::f32, nullptr};
  }
  for (size_t i = 0; i < differentiated.forward_nodes; ++i) {
    for (const auto& pass : kernels[i].backward) {
      for (const auto& o : pass.writes) {
        const Graph::Value& value = value_of(graph, input_of(graph.nodes()[i], o));
        if (value.source != Source::parameter) continue;
        // The gradient is f32 also if the op read the parameter as bf16 or f16.
        const bool f32 = o.spec.dtype == DType::f32;
        layout.entries[static_cast<size_t>(value.slot)].spec =
            f32 ? o.spec : TensorSpec{o.spec.shape, DType::f32, nullptr};
      }
    }
  }
  arrange(layout, std::vector<bool>(parameters.size(), false));
  return layout;
}

void arrange(GradientLayout& layout, const std::vector<bool>& left_out) {
  layout.bytes = 0;
  for (const bool last : {false, true}) {
    for (size_t p = 0; p < layout.entries.size(); ++p) {
      if (left_out.at(p) != last) continue;
      layout.entries[p].offset = layout.bytes;
      layout.bytes += round_up(layout.entries[p].spec.bytes());
      check_allocatable(layout.bytes);
    }
    if (!last) layout.summed_bytes = layout.bytes;
  }
}

bool sums_over_shards_possible(const DifferentiatedGraph& differentiated,
                               std::span<const kernels::Kernel> kernels, size_t parameters) {
  const Graph& graph = differentiated.graph;
  std::vector<int> uses(parameters, 0);
  for (size_t i = 0; i < differentiated.forward_nodes; ++i) {
    const Graph::Node& node = graph.nodes()[i];
    if (!kernels[i].rows_apart) return false;
    for (const int v : node.inputs) {
      const Graph::Value& value = value_of(graph, v);
      if (value.source == Source::parameter) ++uses[static_cast<size_t>(value.slot)];
    }
    for (const auto& pass : kernels[i].backward) {
      for (const auto& o : pass.writes) {
        const bool parameter = value_of(graph, input_of(node, o)).source == Source::parameter;
        if (parameter != pass.over_shards.defined()) return false;
      }
    }
  }
  for (size_t i = differentiated.forward_nodes; i < graph.nodes().size(); ++i) {
    const Op& op = *graph.nodes()[i].op;
    if (!is_accumulation(op) && dynamic_cast<const KernelGradient*>(&op) == nullptr) return false;
  }
  return std::all_of(uses.begin(), uses.end(), [](int count) { return count <= 1; });
}

}  // namespace lockstep
