#include "lockstep/engine/graph/graph.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

int Graph::add_value(const Value& value) {
  values_.push_back(value);
  return static_cast<int>(values_.size()) - 1;
}

int Graph::find(Source source, int slot) const {
  for (size_t v = 0; v < values_.size(); ++v) {
    if (values_[v].source == source && values_[v].slot == slot) return static_cast<int>(v);
  }
  return -1;
}

int Graph::add_input(const Shape& shape, DType dtype) {
  return add_value({Source::input, inputs_++, shape, dtype});
}

int Graph::add_parameter(int slot, const Shape& shape) {
  const int known = find(Source::parameter, slot);
  return known >= 0 ? known : add_value({Source::parameter, slot, shape, DType::f32});
}

int Graph::add_state(int slot, const Shape& shape) {
  const int known = find(Source::state, slot);
  return known >= 0 ? known : add_value({Source::state, slot, shape, DType::f32});
}

int Graph::add_output_gradient(int slot, const Shape& shape) {
  return add_value({Source::output_gradient, slot, shape, DType::f32});
}

TensorSpec Graph::spec(int value) const {
  const Value& of = values_[static_cast<size_t>(value)];
  return {of.shape, of.dtype, nullptr};
}

std::vector<int> Graph::add(OpPtr op, std::vector<int> inputs, const std::string& name) {
  std::vector<TensorSpec> specs;
  for (int v : inputs) specs.push_back(spec(v));
  std::vector<TensorSpec> results;
  try {
    results = op->infer(specs);
  } catch (const InvalidArgument& e) {
    throw InvalidArgument("[" + name + "] " + e.what(), e.hint());
  }
  std::vector<int> outputs;
  const int node = static_cast<int>(nodes_.size());
  for (const TensorSpec& result : results) {
    outputs.push_back(add_value({Source::computed, node, result.shape, result.dtype}));
  }
  nodes_.push_back({std::move(op), name, std::move(inputs), outputs});
  return outputs;
}

int Graph::mark_output(int value) {
  outputs_.push_back(value);
  return static_cast<int>(outputs_.size()) - 1;
}

std::vector<int> Graph::slots(Source source) const {
  std::vector<int> found;
  for (const Value& value : values_) {
    if (value.source == source) found.push_back(value.slot);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Graph Graph::with_inputs_alone() const {
  Graph result = *this;
  for (const Source source : {Source::parameter, Source::state}) {
    for (const int slot : slots(source)) {
      Value& value = result.values_[static_cast<size_t>(find(source, slot))];
      value.source = Source::input;
      value.slot = result.inputs_++;
    }
  }
  return result;
}

Graph Graph::without_nodes(std::vector<int>& moved) const {
  Graph result;
  result.inputs_ = inputs_;
  moved.assign(values_.size(), -1);
  for (size_t v = 0; v < values_.size(); ++v) {
    if (values_[v].source != Source::computed) moved[v] = result.add_value(values_[v]);
  }
  return result;
}

Graph Graph::pruned() const {
  std::vector<bool> needed(values_.size(), false);
  for (const int v : outputs_) needed[static_cast<size_t>(v)] = true;
  std::vector<bool> kept(nodes_.size(), false);
  for (size_t i = nodes_.size(); i-- > 0;) {
    for (const int v : nodes_[i].outputs) kept[i] = kept[i] || needed[static_cast<size_t>(v)];
    if (!kept[i]) continue;
    for (const int v : nodes_[i].inputs) needed[static_cast<size_t>(v)] = true;
  }
  std::vector<int> moved;
  Graph result = without_nodes(moved);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!kept[i]) continue;
    std::vector<int> inputs;
    for (const int v : nodes_[i].inputs) inputs.push_back(moved[static_cast<size_t>(v)]);
    const std::vector<int> outputs = result.add(nodes_[i].op, inputs, nodes_[i].name);
    for (size_t k = 0; k < outputs.size(); ++k) {
      moved[static_cast<size_t>(nodes_[i].outputs[k])] = outputs[k];
    }
  }
  for (const int v : outputs_) result.mark_output(moved[static_cast<size_t>(v)]);
  return result;
}

Graph Graph::fused(std::span<const int> differentiated, const kernels::Table* table) const {
  Graph result =
      (table ? with_inputs_handed_over(*table) : *this).with_pairs_fused(differentiated, table);
  for (size_t before = nodes_.size(); result.nodes_.size() < before;) {
    before = result.nodes_.size();
    result = result.with_pairs_fused(differentiated, table);
  }
  return result;
}

std::vector<std::vector<int>> Graph::readers() const {
  std::vector<std::vector<int>> result(values_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (int v : nodes_[i].inputs) result[static_cast<size_t>(v)].push_back(static_cast<int>(i));
  }
  return result;
}

Graph Graph::with_inputs_handed_over(const kernels::Table& table) const {
  Graph result = *this;
  const std::vector<std::vector<int>> readers = this->readers();
  for (Node& first : result.nodes_) {
    const int between = first.outputs.front();
    const auto& users = readers[static_cast<size_t>(between)];
    // The value between the two ops changes, so no other op may read it.
    if (first.outputs.size() != 1 || users.size() != 1 ||
        std::count(outputs_.begin(), outputs_.end(), between) > 0) {
      continue;
    }
    Node& second = result.nodes_[static_cast<size_t>(users.front())];
    if (second.inputs.front() != between) continue;
    const std::optional<HandedOver> ops = first.op->hand_over(*second.op);
    if (!ops || !ops->second->offered_by(table)) continue;
    second.inputs.push_back(first.inputs.back());
    first.inputs.pop_back();
    first.op = ops->first;
    second.op = ops->second;
  }
  return result;
}

Graph Graph::with_pairs_fused(std::span<const int> differentiated,
                              const kernels::Table* table) const {
  const size_t n = nodes_.size();
  const std::vector<std::vector<int>> readers = this->readers();
  std::vector<bool> is_output(values_.size(), false);
  for (int v : outputs_) is_output[static_cast<size_t>(v)] = true;
  std::vector<bool> is_differentiated(values_.size(), false);
  for (int k : differentiated)
    is_differentiated[static_cast<size_t>(outputs_[static_cast<size_t>(k)])] = true;

  // first_of[j]: the node that node j is fused with, or -1. The pair runs at the position of node
  // j.
  std::vector<int> first_of(n, -1);
  std::vector<bool> absorbed(n, false);
  std::vector<FusedOps> plans(n);
  for (size_t i = 0; i < n; ++i) {
    if (first_of[i] >= 0) continue;  // already the second node of a pair
    const Node& first = nodes_[i];
    const int between = first.outputs.front();
    const auto& users = readers[static_cast<size_t>(between)];
    if (users.size() != 1) continue;
    const auto j = static_cast<size_t>(users[0]);
    const Node& second = nodes_[j];
    if (second.inputs.front() != between || first_of[j] >= 0) continue;
    auto fused = first.op->fuse(*second.op);
    if (!fused || (table && !fused->op->offered_by(*table))) continue;
    bool allowed = true;
    for (size_t k = 0; k < first.outputs.size(); ++k) {
      const auto v = static_cast<size_t>(first.outputs[k]);
      // An output that the fused op does not replace must not be an output of the graph. Outputs
      // after the first must have no reader, because the pair runs later than its first op would
      // have.
      if (fused->first_outputs[k] < 0 && is_output[v]) allowed = false;
      if (k > 0 && !readers[v].empty()) allowed = false;
      // The fused op computes no gradient for a replacement output.
      if (is_differentiated[v]) allowed = false;
    }
    if (!allowed) continue;
    plans[j] = *fused;
    first_of[j] = static_cast<int>(i);
    absorbed[i] = true;
  }

  std::vector<int> moved;
  Graph result = without_nodes(moved);
  for (size_t i = 0; i < n; ++i) {
    if (absorbed[i]) continue;
    const Node& node = nodes_[i];
    OpPtr op = node.op;
    std::string name = node.name;
    std::vector<int> old_inputs = node.inputs;
    if (first_of[i] >= 0) {
      const Node& first = nodes_[static_cast<size_t>(first_of[i])];
      op = plans[i].op;
      name = first.name + "+" + node.name;
      old_inputs = first.inputs;
      old_inputs.insert(old_inputs.end(), node.inputs.begin() + 1, node.inputs.end());
    }
    std::vector<int> inputs;
    for (int v : old_inputs) inputs.push_back(moved[static_cast<size_t>(v)]);
    const std::vector<int> outputs = result.add(op, inputs, name);
    if (first_of[i] < 0) {
      for (size_t k = 0; k < outputs.size(); ++k) {
        moved[static_cast<size_t>(node.outputs[k])] = outputs[k];
      }
      continue;
    }
    const Node& first = nodes_[static_cast<size_t>(first_of[i])];
    for (size_t k = 0; k < first.outputs.size(); ++k) {
      const int stand_in = plans[i].first_outputs[k];
      if (stand_in >= 0) {
        moved[static_cast<size_t>(first.outputs[k])] = outputs[static_cast<size_t>(stand_in)];
      }
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const int stand_in = plans[i].second_outputs[k];
      moved[static_cast<size_t>(node.outputs[k])] = outputs[static_cast<size_t>(stand_in)];
    }
  }
  for (int v : outputs_) result.mark_output(moved[static_cast<size_t>(v)]);
  return result;
}

}  // namespace lockstep
