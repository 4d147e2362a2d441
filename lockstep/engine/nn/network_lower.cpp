// How a network becomes a graph of ops, and what its inputs must be.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network_state.h"

namespace lockstep {

std::vector<MovingStatistics> LoweredNetwork::mark_statistics() {
  std::vector<MovingStatistics> marked = statistics;
  for (MovingStatistics& s : marked) {
    s.channels = graph.shape(s.mean_output).elements();
    s.mean_output = graph.mark_output(s.mean_output);
    s.variance_output = graph.mark_output(s.variance_output);
  }
  return marked;
}

void LoweredNetwork::note_normalized_steps(const Layer& layer, size_t first, int lengths) {
  if (lengths < 0 || layer.type() != BatchNormalizationOptions::kType) return;
  for (size_t node = first; node < graph.nodes().size(); ++node) {
    if (graph.nodes()[node].op->type() == "batch_normalization") normalized_steps[node] = lengths;
  }
}

void LoweredNetwork::note_combined(const LayerNode& node, std::span<const LoweredValue> values,
                                   const std::vector<NetworkValue>& network_inputs) {
  if (node.layer->takes_sequences()) return;
  const auto sequences_before = [&](size_t k) {
    return static_cast<size_t>(std::count_if(input_lengths.begin(),
                                             input_lengths.begin() + static_cast<ptrdiff_t>(k),
                                             [](int lengths) { return lengths >= 0; }));
  };
  std::optional<size_t> first;
  for (const LoweredValue& value : values) {
    if (value.lengths < 0) continue;
    const auto found = std::ranges::find(input_lengths, value.lengths);
    if (found == input_lengths.end()) continue;  // a layer has computed these lengths
    const auto k = static_cast<size_t>(found - input_lengths.begin());
    if (!first) first = k;
    if (k == *first) continue;
    combined.push_back({node.name,
                        {network_inputs[*first].name, network_inputs[k].name},
                        {*first, k},
                        {sequences_before(*first), sequences_before(k)}});
  }
}

void CombinedSequences::refuse(int64_t first, int64_t second, const std::string& of) const {
  throw InvalidArgument("[" + layer + "] its inputs are sequences of different lengths: " + of +
                            " has " + counted(first, "step") + " in `" + names[0] + "`, but " +
                            std::to_string(second) + " in `" + names[1] + "`",
                        "layers combine sequences step by step: give both as many steps, or "
                        "combine one result for each, such as that of last_step");
}

void check_combined(std::span<const CombinedSequences> combined, std::span<const Tensor> lengths,
                    int64_t first_row) {
  for (const CombinedSequences& pair : combined) {
    const Tensor first = lengths[pair.sequences[0]].to({}),
                 second = lengths[pair.sequences[1]].to({});
    for (int64_t i = 0; i < first.shape()[0]; ++i) {
      const int32_t a = first.data<int32_t>()[i], b = second.data<int32_t>()[i];
      if (a != b) pair.refuse(a, b, "observation " + std::to_string(first_row + i + 1));
    }
  }
}

std::vector<int> LoweredNetwork::length_inputs() const {
  std::vector<int> numbers;
  for (const int lengths : input_lengths) {
    if (lengths >= 0) numbers.push_back(graph.values()[static_cast<size_t>(lengths)].slot);
  }
  return numbers;
}

std::vector<Carry> LoweredNetwork::mark_carries() {
  std::vector<Carry> marked = carries;
  for (Carry& carry : marked) carry.output = graph.mark_output(carry.output);
  return marked;
}

LoweredNetwork Network::lower(int64_t n, const LoweringOptions& options) const {
  if (!initialized()) throw InvalidArgument("[network] not initialized");
  const NetworkAnalysis& a = state_->analyze(options.in_segments);
  std::vector<size_t> results = a.output_layers;
  if (!options.outputs.empty()) results = state_->indices_of(options.outputs);
  const std::vector<bool> needed = state_->needed_for(results, a.order);
  LoweredNetwork out;
  std::map<std::string, LoweredValue> values;
  // The caller passes every input, whether the results depend on it or not.
  std::map<size_t, LoweredValue> data;
  for (size_t i : a.order) {
    const Layer& layer = *state_->layers[i].layer;
    if (!layer.is_input()) continue;
    const size_t k = out.inputs.size();
    const DType type = layer.is_token_input()                                    ? DType::i32
                       : k < options.inputs.size() && !layer.is_sequence_input() ? options.inputs[k]
                                                                                 : DType::f32;
    const int64_t steps = options.steps.empty() ? kStepsForQuestions : options.steps.at(k);
    out.inputs.push_back(out.graph.add_input(data_shape(layer, n, steps), type));
    data[i] = {out.inputs.back(), -1};
  }
  for (auto& [i, value] : data) {
    const bool sequence = state_->layers[i].layer->is_sequence_input();
    if (sequence) value.lengths = out.graph.add_input({n}, DType::i32);
  }
  for (size_t i : a.order) {
    if (const auto found = data.find(i); found != data.end()) {
      out.input_lengths.push_back(found->second.lengths);
    }
  }
  const std::vector<NetworkValue> network_inputs = this->inputs();
  const int earlier = options.in_segments ? out.graph.add_input({n}, DType::i32) : -1;
  if (earlier >= 0) out.earlier = out.graph.values()[static_cast<size_t>(earlier)].slot;
  for (size_t i : a.order) {
    const LayerNode& node = state_->layers[i];
    if (!needed[i]) continue;
    std::vector<LoweredValue> inputs;
    if (node.layer->is_input()) inputs.push_back(data.at(i));
    for (const auto& name : node.inputs) inputs.push_back(values.at(name));
    const auto& owner = node.shares.empty() ? node.name : node.shares;
    const size_t owns = state_->indices.at(owner);
    const LayerSlots& slots = state_->slots.at(owner);
    const size_t before = out.graph.nodes().size();
    // Named as this node, so that layers with shared parameters draw different random numbers.
    values[node.name] = lower_layer(
        *node.layer,
        {out.graph, node.name, options.training, a.parameters[owns], a.states[owns],
         a.row_states[owns], slots.first_parameter, slots.first_state, out.statistics,
         options.carry ? &out.carries : nullptr, a.outputs[i].sequence, earlier, options.capacity},
        inputs);
    out.note_normalized_steps(*node.layer, before, inputs[0].lengths);
    out.note_combined(node, inputs, network_inputs);
  }
  for (size_t i : results) {
    const LoweredValue& value = values.at(state_->layers[i].name);
    out.outputs.push_back(value.value);
    out.output_lengths.push_back(value.lengths);
    const LayerNode& node = state_->layers[i];
    TargetScaling& scaling = out.output_scaling.emplace_back();
    const bool scaled = node.layer->type() == DenormalizationOptions::kType;
    const LayerNode& ends = scaled ? state_->layers[state_->indices.at(node.inputs.at(0))] : node;
    if (ends.layer->type() == OutputsOptions::kType && i == results.front()) {
      const nlohmann::json fields = write_layer(*ends.layer);
      OutputsOptions parts;
      FieldReader reader(fields, ends.name);
      parts.visit(reader);
      for (size_t k = 0; k < ends.inputs.size(); ++k) {
        const std::string& name = ends.inputs[k];
        out.parts.push_back({name, values.at(name).value, parts.losses.at(k), parts.weights.at(k)});
      }
    }
    if (!scaled) continue;
    const auto& owner = node.shares.empty() ? node.name : node.shares;
    const auto& states = a.states[state_->indices.at(owner)];
    const int first = state_->slots.at(owner).first_state;
    scaling = {values.at(node.inputs.at(0)).value, out.graph.add_state(first, states.at(0).shape),
               out.graph.add_state(first + 1, states.at(1).shape)};
  }
  return out;
}

std::vector<size_t> Network::State::indices_of(const std::vector<std::string>& names) const {
  std::vector<size_t> found;
  for (const auto& name : names) {
    const auto index = indices.find(name);
    if (index == indices.end()) {
      std::vector<std::string> known;
      for (const auto& node : layers) known.push_back(node.name);
      throw InvalidArgument("[network] no layer `" + name + "`, whose output is requested",
                            suggest(name, known));
    }
    if (std::find(found.begin(), found.end(), index->second) != found.end()) {
      throw InvalidArgument("[network] the output of `" + name + "` is requested twice");
    }
    found.push_back(index->second);
  }
  return found;
}

const RowState& Network::State::row_state(const std::string& name) const {
  const auto found = std::ranges::find(row_states, name, &RowState::name);
  if (found == row_states.end()) throw InternalError("[network] no state by row `" + name + "`");
  return *found;
}

std::vector<bool> Network::State::needed_for(const std::vector<size_t>& results,
                                             const std::vector<size_t>& order) const {
  std::vector<bool> needed(layers.size(), false);
  for (size_t i : results) needed[i] = true;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if (!needed[*i]) continue;
    for (const auto& name : layers[*i].inputs) needed[indices.at(name)] = true;
  }
  return needed;
}

namespace {

bool fits(const Tensor& input, const NetworkValue& wanted) {
  const Dims& dims = input.shape().dims();
  const size_t before = wanted.sequence ? 2 : 1;
  if (dims.size() < before || (wanted.sequence && dims[1] < 1)) return false;
  if (!std::ranges::equal(std::span(dims).subspan(before), wanted.shape.dims())) return false;
  if (input.dtype() == wanted.type) return true;
  return input.dtype() == DType::u8 && !wanted.sequence;
}

}  // namespace

std::string NetworkValue::to_string() const {
  if (!sequence) return shape.to_string();
  return shape.rank() == 0 ? "steps" : "steps x " + shape.to_string();
}

std::vector<Tensor> Network::sequence_lengths(std::span<const Tensor> inputs,
                                              const std::vector<Tensor>& given,
                                              const std::vector<Tensor>& known) const {
  std::vector<Tensor> all;
  size_t k = 0;
  for (const auto& node : layers()) {
    if (!node.layer->is_input()) continue;
    const Tensor& input = inputs[k++];
    if (!node.layer->is_sequence_input()) continue;
    const int64_t n = input.shape()[0], steps = input.shape()[1];
    if (given.empty()) {
      const std::vector<int32_t> whole(static_cast<size_t>(n), static_cast<int32_t>(steps));
      all.push_back(Tensor::from(std::span(whole), Shape{n}).to(device()));
      continue;
    }
    if (all.size() >= given.size()) break;
    const Tensor& lengths = given[all.size()];
    if (lengths.dtype() != DType::i32 || !(lengths.shape() == Shape{n})) {
      throw InvalidArgument("[network] the lengths of the input `" + node.name + "` must be " +
                            counted(n, "number") + " of i32, received " +
                            lengths.spec().to_string());
    }
    const Tensor host = known.empty() ? lengths.to({}) : known.at(all.size());
    for (int64_t i = 0; i < n; ++i) {
      const int32_t length = host.data<int32_t>()[i];
      if (length >= 0 && length <= steps) continue;
      throw InvalidArgument("[network] observation " + std::to_string(i + 1) + " of the input `" +
                            node.name + "` has " + counted(steps, "step") +
                            ", but its length is given as " + std::to_string(length));
    }
    all.push_back(lengths.to(device()));
  }
  if (!given.empty() && all.size() != given.size()) {
    throw InvalidArgument("[network] received the lengths of " + counted(given.size(), "input") +
                          ", but the network has another number of sequences as inputs");
  }
  return all;
}

int64_t Network::check_inputs(std::span<const Tensor> inputs) const {
  const std::vector<NetworkValue> wanted = this->inputs();
  if (inputs.size() != wanted.size()) {
    throw InvalidArgument("[network] takes " + counted(wanted.size(), "input") + ", received " +
                          std::to_string(inputs.size()));
  }
  int64_t n = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape();
    if (i == 0 && shape.rank() > 0) n = shape[0];
    if (!fits(inputs[i], wanted[i]) || shape[0] != n || n < 1) {
      throw InvalidArgument(
          "[network] input " + std::to_string(i + 1) + " must be n x " + wanted[i].to_string() +
          (wanted[i].type == DType::i32 ? " of i32"
           : wanted[i].sequence         ? " of f32"
                                        : " of f32 or u8") +
          (i > 0 ? ", where n is the batch size of input 1 (" + std::to_string(n) + ")" : "") +
          ", received " + inputs[i].spec().to_string());
    }
    if (inputs[i].device() != device()) {
      throw InvalidArgument("[network] input " + std::to_string(i + 1) + " is on " +
                                to_string(inputs[i].device()) + ", but the network is on " +
                                to_string(device()),
                            "move one of them: tensor.to(device) or network.to(device)");
    }
  }
  return n;
}

}  // namespace lockstep
