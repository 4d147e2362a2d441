#include "lockstep/engine/plan/derivatives.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/allocator.h"

namespace lockstep {
namespace {

using Source = Graph::Source;

const Graph::Value& value_of(const Graph& graph, int v) {
  return graph.values()[static_cast<size_t>(v)];
}

// The value of which a backward pass computes the derivative.
int differentiated(const Graph::Node& node, const kernels::Operand& write) {
  return node.inputs[static_cast<size_t>(write.index)];
}

}  // namespace

bool has_total_output_gradient(const Graph& graph, const PlanOptions& options, int k) {
  const int value = graph.outputs()[static_cast<size_t>(k)];
  if (!options.total_output_gradients || value_of(graph, value).source != Source::computed) {
    return false;
  }
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end();
  });
}

std::vector<bool> values_with_derivatives(const Graph& graph, const PlanOptions& options) {
  std::vector<bool> wanted(graph.values().size(), false);
  for (size_t v = 0; v < wanted.size(); ++v) {
    const Graph::Value& value = graph.values()[v];
    wanted[v] =
        value.source == Source::parameter ||
        (value.source == Source::input && options.input_gradients && value.dtype == DType::f32);
  }
  for (const int k : options.differentiated) {
    if (!has_total_output_gradient(graph, options, k)) continue;
    wanted[static_cast<size_t>(graph.outputs()[static_cast<size_t>(k)])] = true;
  }
  for (const auto& node : graph.nodes()) {
    bool any = false;
    for (const int v : node.inputs) any |= wanted[static_cast<size_t>(v)];
    for (const int v : node.outputs) {
      wanted[static_cast<size_t>(v)] = wanted[static_cast<size_t>(v)] || any;
    }
  }
  return wanted;
}

GradientLayout gradient_layout_of(const Graph& graph, std::span<const kernels::Kernel> kernels,
                                  const std::vector<Shape>& parameters,
                                  const std::vector<bool>& wanted) {
  GradientLayout layout;
  layout.entries.resize(parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    layout.entries[p].spec = {parameters[p], DType::f32, nullptr};
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const auto& pass : kernels[i].backward) {
      for (const auto& o : pass.writes) {
        const int v = differentiated(graph.nodes()[i], o);
        const Graph::Value& value = value_of(graph, v);
        if (value.source != Source::parameter || !wanted[static_cast<size_t>(v)]) continue;
        // The gradient is f32 also if the op read the parameter as bf16 or f16.
        const bool f32 = o.spec.dtype == DType::f32;
        layout.entries[static_cast<size_t>(value.slot)].spec =
            f32 ? o.spec : TensorSpec{o.spec.shape, DType::f32, nullptr};
      }
    }
  }
  for (auto& entry : layout.entries) {
    entry.offset = layout.bytes;
    layout.bytes += (entry.spec.bytes() + 63) / 64 * 64;
    check_allocatable(layout.bytes);
  }
  return layout;
}

void check_differentiable(const Graph::Node& node, const kernels::Kernel& kernel, size_t input) {
  for (const auto& pass : kernel.backward) {
    for (const auto& o : pass.writes) {
      if (static_cast<size_t>(o.index) == input) return;
    }
  }
  throw Unsupported("[" + node.name + "] " + std::string(node.op->type()) +
                    " has no gradient with respect to its input " + std::to_string(input + 1));
}

bool sums_over_shards_possible(const Graph& graph, std::span<const kernels::Kernel> kernels,
                               size_t parameters) {
  std::vector<int> uses(parameters, 0);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Graph::Node& node = graph.nodes()[i];
    if (!kernels[i].rows_apart) return false;
    for (const int v : node.inputs) {
      const Graph::Value& value = value_of(graph, v);
      if (value.source == Source::parameter) ++uses[static_cast<size_t>(value.slot)];
    }
    for (const auto& pass : kernels[i].backward) {
      for (const auto& o : pass.writes) {
        const bool parameter = value_of(graph, differentiated(node, o)).source == Source::parameter;
        if (parameter != pass.over_shards.defined()) return false;
      }
    }
  }
  return std::all_of(uses.begin(), uses.end(), [](int count) { return count == 1; });
}

}  // namespace lockstep
