#include "lockstep/engine/nn/network.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/layers/initializer.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network_state.h"

namespace lockstep {
namespace {

bool valid_name(const std::string& name) {
  return !name.empty() && name.size() <= 200 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '_' || c == '-' || c == '/' || c == '.';
         });
}

template <class T>
Tensor named_value(const std::vector<T>& all, const std::string& name, const char* what) {
  std::vector<std::string> names;
  for (const auto& entry : all) {
    if (entry.name == name) return entry.value;
    names.push_back(entry.name);
  }
  throw InvalidArgument(std::string("[network] no ") + what + " `" + name + "`",
                        suggest(name, names));
}

}  // namespace

Network::Network() : state_(std::make_unique<State>()) {}
Network::Network(std::initializer_list<LayerPtr> layers) : Network() {
  for (const auto& layer : layers) add(layer);
}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;

Network Network::clone() const {
  Network copy;
  copy.state_->layers = state_->layers;
  copy.state_->indices = state_->indices;
  copy.state_->numbers = state_->numbers;
  copy.state_->loss = state_->loss;
  copy.state_->columns = state_->columns;
  copy.state_->device = state_->device;
  if (!initialized()) return copy;
  copy.initialize(0);
  for (size_t i = 0; i < state_->parameters.size(); ++i) {
    copy.state_->parameters[i].value.copy_from(state_->parameters[i].value);
  }
  for (size_t i = 0; i < state_->states.size(); ++i) {
    copy.state_->states[i].value.copy_from(state_->states[i].value);
  }
  copy.state_->row_states = copies_of(state_->row_states);
  copy.state_->forward_carries = state_->forward_carries;
  copy.state_->segments = state_->segments.clone();
  return copy;
}

std::vector<RowState> copies_of(const std::vector<RowState>& states) {
  std::vector<RowState> copies;
  for (const RowState& s : states) copies.push_back({s.name, s.value.clone(), s.initial});
  return copies;
}

const LayerNode* Network::State::find(const std::string& name) const {
  const auto found = indices.find(name);
  return found == indices.end() ? nullptr : &layers[found->second];
}

std::string Network::add(LayerPtr layer, std::string name, std::vector<std::string> inputs) {
  if (!layer) throw InvalidArgument("[network] the layer is null");
  if (name.empty()) {
    const std::string type(layer->type());
    int& number = state_->numbers[type];
    do {
      name = type + "_" + std::to_string(++number);
    } while (state_->find(name));
  }
  if (!valid_name(name)) {
    throw InvalidArgument("[network] `" + name + "` is not a valid layer name",
                          "letters, digits, _ - / and . may be used");
  }
  if (state_->find(name))
    throw InvalidArgument("[network] two layers have the name `" + name + "`");
  if (inputs.empty() && !layer->is_input() && !state_->layers.empty()) {
    inputs.push_back(state_->layers.back().name);
  }
  state_->indices[name] = state_->layers.size();
  state_->layers.push_back({name, std::move(layer), std::move(inputs), {}});
  state_->initialized = false;
  state_->row_states.clear();
  reset_state();
  state_->forget_analyses();
  state_->forget_plans();
  return name;
}

std::string Network::add_shared(std::string shared, std::string name,
                                std::vector<std::string> inputs) {
  const LayerNode* owner = state_->find(shared);
  if (!owner) {
    std::vector<std::string> names;
    for (const auto& node : state_->layers) names.push_back(node.name);
    throw InvalidArgument("[network] no layer `" + shared + "` to share", suggest(shared, names));
  }
  if (!owner->shares.empty()) {
    return add_shared(owner->shares, std::move(name), std::move(inputs));
  }
  const std::string added = add(owner->layer, std::move(name), std::move(inputs));
  state_->layers.back().shares = std::move(shared);
  return added;
}

void Network::set_loss(const std::string& loss) {
  check_loss(loss);
  state_->loss = loss;
}

const std::string& Network::loss() const { return state_->loss; }
const std::vector<LayerNode>& Network::layers() const { return state_->layers; }
bool Network::initialized() const { return state_->initialized; }
const std::vector<Parameter>& Network::parameters() const { return state_->parameters; }
const std::vector<NetworkState>& Network::state() const { return state_->states; }
const std::vector<RowState>& Network::row_states() const { return state_->row_states; }

int64_t Network::made_rows() const {
  return row_states().empty() ? 0 : row_states().front().value.shape()[0];
}

void Network::make_row_states(int64_t rows, bool forward_carries) {
  if (rows < 0) {
    throw InvalidArgument("[network] states by row for " + std::to_string(rows) + " rows");
  }
  state_->row_states.clear();
  state_->forward_carries = forward_carries;
  if (rows == 0) return;
  state_->row_states = state_->made_states(state_->sound_analysis(), rows);
}

std::vector<RowState> Network::State::made_states(const NetworkAnalysis& analysis,
                                                  int64_t rows) const {
  std::vector<RowState> made;
  for (const size_t i : analysis.order) {
    for (const StateSpec& spec : analysis.row_states[i]) {
      made.push_back({layers[i].name + "." + spec.name,
                      Tensor::full(batch_shape(rows, spec.shape), spec.initial), spec.initial});
    }
  }
  return made;
}

std::vector<std::pair<std::string, Shape>> Network::row_state_shapes() const {
  const NetworkAnalysis& analysis = state_->sound_analysis();
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const size_t i : analysis.order) {
    for (const StateSpec& spec : analysis.row_states[i]) {
      shapes.emplace_back(state_->layers[i].name + "." + spec.name, spec.shape);
    }
  }
  return shapes;
}

void Network::reset_row_states() {
  for (const RowState& state : state_->row_states) {
    std::fill_n(state.value.data<float>(), state.value.shape().elements(), state.initial);
  }
}

void Network::State::forget_plans() {
  const MutexLock lock(mutex);
  plans.clear();
}

void Network::State::forget_analyses() {
  const MutexLock lock(analysis_mutex);
  for (std::unique_ptr<const NetworkAnalysis>& analysis : analyses) analysis.reset();
}

std::vector<float> Network::State::lay_out() {
  const NetworkAnalysis& analysis = analyze();
  std::vector<float> initials;
  const auto sized = [&](const Shape& shape) {
    return Tensor::view(nullptr, {shape, DType::f32, nullptr}, nullptr, device);
  };
  parameters.clear();
  states.clear();
  slots.clear();
  forget_plans();
  packed.reset();
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerNode& node = layers[i];
    if (!node.shares.empty()) continue;
    slots[node.name] = {static_cast<int>(parameters.size()), static_cast<int>(states.size())};
    for (const auto& spec : analysis.parameters[i]) {
      parameters.push_back({node.name + "." + spec.name, sized(spec.shape), spec});
    }
    for (const auto& spec : analysis.states[i]) {
      states.push_back({node.name + "." + spec.name, sized(spec.shape)});
      initials.push_back(spec.initial);
    }
  }
  return initials;
}

void Network::initialize_sizes() {
  check();
  state_->lay_out();
  reset_row_states();
  reset_state();
  state_->initialized = true;
}

void Network::initialize(uint64_t seed) {
  check();
  const ArithmeticMode mode;
  State& s = *state_;
  s.initialized = false;
  reset_row_states();
  reset_state();
  const std::vector<float> initials = s.lay_out();
  for (Parameter& parameter : s.parameters) {
    Tensor value(parameter.spec.shape, DType::f32);
    lockstep::initialize(value, parameter.spec, seed, parameter.name);
    parameter.value = value.to(s.device);
  }
  for (size_t k = 0; k < s.states.size(); ++k) {
    NetworkState& state = s.states[k];
    state.value = Tensor::full(state.value.shape(), initials[k], s.device);
  }
  s.packed = std::make_shared<PackedParameters>(parameter_values());
  s.initialized = true;
}

void Network::to(Device device) {
  State& s = *state_;
  if (device == s.device) return;
  kernels::table_for(device);  // throws if the device cannot be used
  std::vector<Parameter> parameters = s.parameters;
  std::vector<NetworkState> states = s.states;
  for (auto& parameter : parameters) parameter.value = parameter.value.to(device);
  for (auto& state : states) state.value = state.value.to(device);
  s.device = device;
  s.parameters = std::move(parameters);
  s.states = std::move(states);
  s.forget_plans();
  if (s.packed) s.packed = std::make_shared<PackedParameters>(parameter_values());
}

Device Network::device() const { return state_->device; }

int64_t Network::parameter_elements() const {
  int64_t total = 0;
  for (const auto& l : state_->parameters) total += l.value.shape().elements();
  return total;
}

std::vector<Tensor> Network::parameter_values() const {
  std::vector<Tensor> values;
  for (const auto& l : state_->parameters) values.push_back(l.value);
  return values;
}

Tensor Network::parameter(const std::string& name) const {
  return named_value(state_->parameters, name, "parameter");
}

Tensor Network::state_value(const std::string& name) const {
  return named_value(state_->states, name, "state");
}

std::vector<Shape> Network::parameter_shapes() const {
  std::vector<Shape> shapes;
  for (const auto& l : state_->parameters) shapes.push_back(l.value.shape());
  return shapes;
}

std::vector<const float*> Network::state_pointers() const {
  std::vector<const float*> pointers;
  for (const auto& s : state_->states) pointers.push_back(static_cast<float*>(s.value.raw()));
  return pointers;
}

PackedParameters& Network::packed() {
  if (!state_->packed) throw InvalidArgument("[network] not initialized");
  return *state_->packed;
}

Digest network_digest(const Network& network) {
  Digester digester;
  const auto add = [&](const Tensor& tensor) {
    const Tensor host = tensor.to({});
    digester.bytes(host.raw(), host.bytes());
  };
  for (const auto& p : network.parameters()) add(p.value);
  for (const auto& s : network.state()) add(s.value);
  return digester.finish();
}

}  // namespace lockstep
