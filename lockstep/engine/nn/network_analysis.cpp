#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/layer_builder.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network_state.h"

namespace lockstep {
namespace {

// Searching for similar names takes time proportional to the number of layers.
constexpr size_t kMostSuggestions = 10;

// Checks the ranges of the fields, also for layers made in C++.
void check_fields(const Layer& layer) {
  const nlohmann::json object = write_layer(layer);
  FieldReader reader(object, std::string(layer.type()), {}, {"type"});
  layer.visit(reader);
}

// Returns the layers (by index) in an order of execution. Of the layers whose inputs are all known,
// the lowest index comes first. Inputs that are not layers are ignored. Layers in a cycle and
// layers that depend on a cycle are left out.
std::vector<size_t> order_of_execution(const std::vector<LayerNode>& layers,
                                       const std::map<std::string, size_t>& indices) {
  std::vector<size_t> missing(layers.size(), 0);
  std::vector<std::vector<size_t>> readers(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const auto& name : layers[i].inputs) {
      const auto found = indices.find(name);
      if (found == indices.end()) continue;
      ++missing[i];
      readers[found->second].push_back(i);
    }
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (size_t reader : readers[i]) {
      if (--missing[reader] == 0) ready.push(reader);
    }
  }
  return order;
}

// What an error says, with its hint and a remark at the end of its first line; further lines show a
// location.
std::string problem_text(const InvalidArgument& e, const std::string& remark = {}) {
  std::string text = e.what();
  const std::string more = (e.hint().empty() ? "" : "; " + e.hint()) + remark;
  return text.insert(std::min(text.find('\n'), text.size()), more);
}

// Tokens of an input that the table of an embedding lacks would have results of NaN. "" if there
// are none.
std::string missing_tokens(const Layer& embedding, const Layer& input) {
  if (embedding.type() != EmbeddingOptions::kType || !input.is_token_input()) return {};
  const auto tokens = [](const Layer& layer) {
    return write_layer(layer).value("vocabulary", int64_t{0});
  };
  const int64_t has = tokens(embedding), given = tokens(input);
  if (has >= given) return {};
  return fmt::format(
      "[embedding] has {}, but its input gives {}; set its vocabulary to that of the input",
      counted(has, "token"), given);
}

// The data that an input layer receives.
LayerValue data_of(const Layer& input) {
  return {data_shape(input, 1, 1), input.is_token_input() ? DType::i32 : DType::f32,
          input.is_sequence_input()};
}

// A function of the layers alone.
NetworkAnalysis analysis_of(const std::vector<LayerNode>& layers,
                            const std::map<std::string, size_t>& indices, bool in_segments) {
  NetworkAnalysis a;
  const size_t n = layers.size();
  a.inputs.resize(n);
  a.outputs.resize(n);
  a.parameters.resize(n);
  a.states.resize(n);
  a.row_states.resize(n);
  a.steps.resize(n);
  a.most_steps.resize(n, std::numeric_limits<int64_t>::max());
  if (n == 0) {
    a.problems.push_back({"", "the network has no layers"});
    return a;
  }
  std::vector<std::string> names;
  for (const auto& node : layers) names.push_back(node.name);
  size_t unknown = 0;

  std::vector<bool> read(n, false), sound(n, true);
  bool any_input = false;
  for (size_t i = 0; i < n; ++i) {
    const LayerNode& node = layers[i];
    any_input |= node.layer->is_input();
    if (node.shares.empty()) {
      try {
        check_fields(*node.layer);
      } catch (const InvalidArgument& e) {
        a.problems.push_back({node.name, problem_text(e)});
        sound[i] = false;
      }
    } else if (!sound[indices.at(node.shares)]) {
      sound[i] = false;
    }
    for (const auto& name : node.inputs) {
      const auto found = indices.find(name);
      if (found == indices.end()) {
        a.problems.push_back(
            {node.name, "its input `" + name + "` is not a layer" +
                            (++unknown > kMostSuggestions ? "" : "; " + suggest(name, names))});
        sound[i] = false;
      } else {
        read[found->second] = true;
      }
    }
    const int count = static_cast<int>(node.inputs.size());
    if (count < node.layer->least_inputs() || count > node.layer->most_inputs()) {
      const int least = node.layer->least_inputs(), most = node.layer->most_inputs();
      const bool over = count > most && most > least, more = !over && most > least;
      const int number = over ? most : least;
      a.problems.push_back(
          {node.name, fmt::format("takes {}{}{} input{}, has {}", over ? "at most " : "", number,
                                  more ? " or more" : "", number == 1 && !more ? "" : "s", count)});
      sound[i] = false;
    }
  }
  if (!any_input) a.problems.push_back({"", "the network has no input layer"});

  a.order = order_of_execution(layers, indices);
  if (a.order.size() < n) {
    std::vector<bool> done(n, false);
    for (size_t i : a.order) done[i] = true;
    std::string cycle;
    for (size_t i = 0; i < n; ++i) {
      if (!done[i]) cycle += (cycle.empty() ? "" : ", ") + layers[i].name;
    }
    a.problems.push_back({"", "the inputs of these layers form a cycle: " + cycle});
  }

  for (size_t i : a.order) {
    const LayerNode& node = layers[i];
    for (const auto& name : node.inputs) {
      const auto found = indices.find(name);
      if (found == indices.end() || !sound[found->second]) {
        sound[i] = false;
        break;
      }
      a.inputs[i].push_back(a.outputs[found->second]);
    }
    if (!sound[i]) continue;  // already reported for this layer or for one that it depends on
    try {
      std::vector<LayerValue> inputs = a.inputs[i];
      if (node.layer->is_input()) inputs = {data_of(*node.layer)};
      DeclaredLayer declared = declare_layer(*node.layer, node.name, inputs, in_segments);
      a.parameters[i] = std::move(declared.parameters);
      a.states[i] = std::move(declared.states);
      a.row_states[i] = std::move(declared.row_states);
      a.steps[i] = std::move(declared.steps);
      a.most_steps[i] = declared.most_steps;
      a.outputs[i] = declared.result;
    } catch (const InvalidArgument& e) {
      std::string received;
      for (const LayerValue& input : a.inputs[i]) {
        received += (received.empty() ? "" : ", ") + input.to_string();
      }
      if (received.empty()) received = "none";
      a.problems.push_back({node.name, problem_text(e, " (layer's input: " + received + ")")});
      sound[i] = false;
    }
  }
  // Checked after all sizes are known, because a layer may run before the one whose parameters it
  // shares.
  for (size_t i : a.order) {
    const LayerNode& node = layers[i];
    if (node.shares.empty()) continue;
    const size_t owner = indices.at(node.shares);
    if (!sound[i] || !sound[owner]) continue;
    const auto compare = [&](const auto& shared, const auto& own) {
      for (size_t p = 0; p < std::min(shared.size(), own.size()); ++p) {
        if (shared[p].shape == own[p].shape) continue;
        a.problems.push_back({node.name, "shares " + shared[p].name + " of " +
                                             shared[p].shape.to_string() + " with " + node.shares +
                                             ", but needs " + own[p].shape.to_string()});
        return false;
      }
      return true;
    };
    if (compare(a.parameters[owner], a.parameters[i])) compare(a.states[owner], a.states[i]);
  }
  for (const size_t i : a.order) {
    if (!sound[i] || layers[i].inputs.size() != 1) continue;
    const Layer& input = *layers[indices.at(layers[i].inputs[0])].layer;
    const std::string missing = missing_tokens(*layers[i].layer, input);
    if (!missing.empty()) a.problems.push_back({layers[i].name, missing});
  }
  for (size_t i = 0; i < n; ++i) {
    if (!read[i]) a.output_layers.push_back(i);
  }
  return a;
}

}  // namespace

const NetworkAnalysis& Network::State::analyze(bool in_segments) const {
  std::unique_ptr<const NetworkAnalysis>& known = analyses[in_segments];
  {
    const MutexLock lock(analysis_mutex);
    if (known) return *known;
  }
  // Layers of users may lock what they like. Of two threads the first one's result stays.
  auto made = std::make_unique<const NetworkAnalysis>(analysis_of(layers, indices, in_segments));
  const MutexLock lock(analysis_mutex);
  if (!known) known = std::move(made);
  return *known;
}

const NetworkAnalysis& Network::State::sound_analysis() const {
  const NetworkAnalysis& analysis = analyze();
  refuse_problems(analysis.problems, {});
  return analysis;
}

std::vector<NetworkProblem> Network::analyze() const { return state_->analyze().problems; }

void refuse_problems(const std::vector<NetworkProblem>& problems, const std::string& what) {
  if (problems.empty()) return;
  std::string text = "[network] " + what + std::to_string(problems.size()) +
                     (problems.size() == 1 ? " problem:" : " problems:");
  for (const auto& p : problems) {
    text += "\n  " + (p.layer.empty() ? std::string() : p.layer + ": ") + p.message;
  }
  throw InvalidArgument(text);
}

void Network::check() const { state_->sound_analysis(); }

std::vector<std::string> Network::input_names() const {
  std::vector<std::string> names;
  for (const auto& node : state_->layers) {
    if (node.layer->is_input()) names.push_back(node.name);
  }
  return names;
}

std::vector<Shape> Network::input_shapes() const {
  std::vector<Shape> shapes;
  for (const auto& node : state_->layers) {
    if (node.layer->is_input()) shapes.push_back(node.layer->input_shape());
  }
  return shapes;
}

std::vector<Shape> Network::output_shapes() const {
  const NetworkAnalysis& a = state_->sound_analysis();
  std::vector<Shape> shapes;
  for (size_t i : a.output_layers) shapes.push_back(a.outputs[i].each());
  return shapes;
}

std::vector<NetworkValue> Network::inputs() const {
  std::vector<NetworkValue> all;
  for (const auto& node : state_->layers) {
    if (!node.layer->is_input()) continue;
    const LayerValue data = data_of(*node.layer);
    all.push_back({node.name, data.each(), data.sequence, data.type});
  }
  return all;
}

std::vector<NetworkValue> Network::outputs() const {
  const NetworkAnalysis& a = state_->sound_analysis();
  std::vector<NetworkValue> all;
  for (const size_t i : a.output_layers) {
    const LayerValue& value = a.outputs[i];
    all.push_back({state_->layers[i].name, value.each(), value.sequence, value.type});
  }
  return all;
}

std::vector<std::pair<std::string, Shape>> Network::value_shapes() const {
  const NetworkAnalysis& a = state_->sound_analysis();
  std::vector<std::pair<std::string, Shape>> parameters, states;
  for (size_t i = 0; i < state_->layers.size(); ++i) {
    const LayerNode& node = state_->layers[i];
    if (!node.shares.empty()) continue;
    for (const auto& p : a.parameters[i])
      parameters.emplace_back(node.name + "." + p.name, p.shape);
    for (const auto& s : a.states[i]) states.emplace_back(node.name + "." + s.name, s.shape);
  }
  parameters.insert(parameters.end(), states.begin(), states.end());
  return parameters;
}

std::string Network::summary() const {
  const NetworkAnalysis& a = state_->sound_analysis();
  struct Row {
    std::string name, type, inputs, size, parameters, state;
  };
  std::vector<Row> rows{{"name", "type", "inputs", "output size", "parameters", "state"}};
  int64_t parameters = 0, state = 0;
  for (size_t i : a.order) {
    const LayerNode& node = state_->layers[i];
    Row row{node.name, std::string(node.layer->type()), {}, a.outputs[i].to_string(), {}, {}};
    for (const auto& input : node.inputs) row.inputs += (row.inputs.empty() ? "" : ", ") + input;
    if (!node.shares.empty()) {
      row.parameters = "shared with " + node.shares;
    } else {
      int64_t own = 0, kept = 0;
      for (const auto& p : a.parameters[i]) own += p.shape.elements();
      for (const auto& s : a.states[i]) kept += s.shape.elements();
      row.parameters = own ? std::to_string(own) : "-";
      row.state = kept ? std::to_string(kept) : "-";
      parameters += own;
      state += kept;
    }
    rows.push_back(std::move(row));
  }
  const auto widest = [&](std::string Row::*column) {
    size_t width = 0;
    for (const auto& row : rows) width = std::max(width, (row.*column).size());
    return width;
  };
  const size_t name = widest(&Row::name), type = widest(&Row::type), inputs = widest(&Row::inputs),
               size = widest(&Row::size), learn = widest(&Row::parameters),
               kept = widest(&Row::state);
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}  {:>{}}\n", row.name, name,
                        row.type, type, row.inputs, inputs, row.size, size, row.parameters, learn,
                        row.state, kept);
    if (r == 0) {
      text += std::string(name + type + inputs + size + learn + kept + 10, '-') + "\n";
    }
  }
  return text + fmt::format("{} layers, {} parameters, {} values of state\n", state_->layers.size(),
                            parameters, state);
}

}  // namespace lockstep
