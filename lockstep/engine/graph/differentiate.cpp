#include "lockstep/engine/graph/differentiate.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep {
namespace {

class Accumulation final : public FloatOp {
 public:
  std::string_view type() const override { return "sum of derivatives"; }
  bool takes_narrow(size_t) const override { return true; }
  const kernels::Instruction* instruction() const override {
    static const kernels::Instruction add{kernels::Opcode::add, 0, 1};
    return &add;
  }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 2, 2);
    if (!(in[0] == in[1])) {
      throw InternalError("[sum of derivatives] shapes differ: " + in[0].to_string() + " and " +
                          in[1].to_string());
    }
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    kernels::Pass pass = kernels::accumulate(table, in[0]);
    pass.reads = {kernels::input(0, in[0]), kernels::input(1, in[0])};
    pass.writes = {kernels::output(0, in[0])};
    return {.forward = std::move(pass), .backward = {}, .rows_apart = true};
  }
  std::vector<Value> gradient(const AppliedOp& applied) const override {
    return {applied.diff_outputs[0], applied.diff_outputs[0]};
  }
};

class GraphNodes final : public Differentiated {
 public:
  GraphNodes(Graph& graph, size_t nodes) : graph_(graph), nodes_(nodes) {}
  size_t nodes() const override { return nodes_; }
  std::span<const int> inputs(size_t node) const override { return graph_.nodes()[node].inputs; }
  std::span<const int> outputs(size_t node) const override { return graph_.nodes()[node].outputs; }
  bool has_zero_slope(size_t node) const override {
    return graph_.nodes()[node].op->has_zero_slope();
  }

  std::vector<int> gradient(size_t i, const std::vector<int>& diff_outputs,
                            const std::vector<bool>& wanted) override {
    const Graph::Node& node = graph_.nodes()[i];
    GraphBuilder builder(graph_, node.name);
    const auto value = [&](int v) { return v < 0 ? Value() : Value(&builder, v); };
    AppliedOp applied;
    for (const int v : node.inputs) {
      applied.inputs.push_back(value(v));
      applied.wanted.push_back(wanted[static_cast<size_t>(v)]);
    }
    if (std::count(applied.wanted.begin(), applied.wanted.end(), true) == 0) return {};
    for (const int v : node.outputs) applied.outputs.push_back(value(v));
    for (const int v : diff_outputs) applied.diff_outputs.push_back(value(v));
    std::vector<int> results;
    for (const Value& result : node.op->gradient(applied)) results.push_back(result.number());
    return results;
  }
  int sum(int a, int b, size_t node) override {
    return graph_.add(make_accumulation(), {a, b}, graph_.nodes()[node].name).front();
  }

 private:
  Graph& graph_;
  size_t nodes_;
};

}  // namespace

OpPtr make_accumulation() {
  static const OpPtr op = kept(std::make_shared<Accumulation>());
  return op;
}

bool is_accumulation(const Op& op) { return &op == make_accumulation().get(); }

void mark_dependents(const Differentiated& of, std::vector<bool>& marked) {
  for (size_t i = 0; i < of.nodes(); ++i) {
    if (of.has_zero_slope(i)) continue;
    const auto inputs = of.inputs(i);
    const bool any = std::any_of(inputs.begin(), inputs.end(),
                                 [&](int v) { return marked[static_cast<size_t>(v)]; });
    if (!any) continue;
    for (const int v : of.outputs(i)) marked[static_cast<size_t>(v)] = true;
  }
}

void sweep_backward(Differentiated& of, std::vector<int>& diffs, const std::vector<bool>& wanted) {
  for (size_t i = of.nodes(); i-- > 0;) {
    std::vector<int> diff_outputs;
    bool reached = false;
    for (const int v : of.outputs(i)) {
      diff_outputs.push_back(diffs[static_cast<size_t>(v)]);
      reached |= diff_outputs.back() >= 0;
    }
    if (!reached) continue;
    // Copies, because the node's own list may move when nodes are added.
    const std::vector<int> inputs(of.inputs(i).begin(), of.inputs(i).end());
    const std::vector<int> outputs(of.outputs(i).begin(), of.outputs(i).end());
    const std::vector<int> results = of.gradient(i, diff_outputs, wanted);
    for (size_t k = inputs.size(); k < results.size(); ++k) {
      if (results[k] >= 0) diffs[static_cast<size_t>(outputs[k - inputs.size()])] = results[k];
    }
    for (size_t k = 0; k < std::min(inputs.size(), results.size()); ++k) {
      const auto v = static_cast<size_t>(inputs[k]);
      if (results[k] < 0 || !wanted[v]) continue;
      diffs[v] = diffs[v] < 0 ? results[k] : of.sum(diffs[v], results[k], i);
    }
  }
}

std::vector<int> add_gradients(Graph& graph, std::span<const DerivativeSeed> seeds,
                               std::span<const int> with_respect_to) {
  GraphNodes nodes(graph, graph.nodes().size());
  std::vector<bool> wanted(graph.values().size(), false);
  for (const int v : with_respect_to) wanted[static_cast<size_t>(v)] = true;
  mark_dependents(nodes, wanted);
  std::vector<int> diffs(graph.values().size(), -1);
  for (const DerivativeSeed& seed : seeds) {
    int& diff = diffs[static_cast<size_t>(seed.value)];
    diff = diff < 0 ? seed.diff
                    : graph.add(make_accumulation(), {diff, seed.diff}, "output gradient").front();
  }
  sweep_backward(nodes, diffs, wanted);
  std::vector<int> found;
  for (const int v : with_respect_to) found.push_back(diffs[static_cast<size_t>(v)]);
  return found;
}

std::vector<Value> replayed(const Graph& graph, std::span<const Value> inputs,
                            std::span<const int> results) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const int v : results) {
    if (v >= 0) needed[static_cast<size_t>(v)] = true;
  }
  const auto& nodes = graph.nodes();
  std::vector<bool> replays(nodes.size(), false);
  for (size_t i = nodes.size(); i-- > 0;) {
    for (const int v : nodes[i].outputs) replays[i] = replays[i] || needed[static_cast<size_t>(v)];
    if (!replays[i]) continue;
    for (const int v : nodes[i].inputs) needed[static_cast<size_t>(v)] = true;
  }
  std::vector<Value> values(graph.values().size());
  for (size_t v = 0; v < values.size(); ++v) {
    const Graph::Value& value = graph.values()[v];
    if (value.source == Graph::Source::input) values[v] = inputs[static_cast<size_t>(value.slot)];
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!replays[i]) continue;
    std::vector<Value> in;
    for (const int v : nodes[i].inputs) in.push_back(values[static_cast<size_t>(v)]);
    const std::vector<Value> out = apply_all(nodes[i].op, in);
    for (size_t k = 0; k < out.size(); ++k) {
      values[static_cast<size_t>(nodes[i].outputs[k])] = out[k];
    }
  }
  std::vector<Value> found;
  for (const int v : results) found.push_back(v < 0 ? Value() : values[static_cast<size_t>(v)]);
  return found;
}

}  // namespace lockstep
