#include "lockstep/engine/nn/custom_layer.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/shape_inference.h"

namespace lockstep {

// Parameters and states in the order of their first request.
struct LayerBuilder::Declared {
  std::vector<ParameterSpec> parameters;
  std::vector<StateSpec> states;
};

namespace {

template <class Spec>
int place_of(const std::vector<Spec>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const Spec& s) { return s.name == name; });
  return found == specs.end() ? -1 : static_cast<int>(found - specs.begin());
}

// Records the parameters and states that a layer requests with their shapes.
class Declaring final : public ShapeInference {
 public:
  using ShapeInference::ShapeInference;
  void declare_parameter(const Shape& shape) { parameters_.push_back(shape); }
  void declare_state(const Shape& shape) { states_.push_back(shape); }
  int input() override { throw InternalError("[custom layer] no input layer"); }

 private:
  Shape parameter_shape(int k) const override { return parameters_.at(static_cast<size_t>(k)); }
  Shape state_shape(int k) const override { return states_.at(static_cast<size_t>(k)); }

  std::vector<Shape> parameters_, states_;
};

[[noreturn]] void refuse(std::string_view type, const std::string& what,
                         const std::string& hint = {}) {
  throw InvalidArgument("[" + std::string(type) + "] " + what, hint);
}

constexpr const char* why_the_same =
    "build() may depend only on the layer's fields and the shape of an observation";

}  // namespace

LayerBuilder::LayerBuilder(LoweringLayer& context, Declared& declared, bool declaring)
    : context_(context), declared_(declared), declaring_(declaring) {}

bool LayerBuilder::training() const { return context_.training(); }

const std::string& LayerBuilder::name() const { return context_.name(); }

TensorSpec LayerBuilder::spec_of(int value) const { return context_.spec_of(value); }

int LayerBuilder::number_of(const Value& value) const {
  if (value.builder() == this) return value.number();
  throw InvalidArgument(
      "[custom layer] a value of another layer, or of another call of build(), was used");
}

// Notes one call of build(), so that two different builds have different notes. Values are
// identified by their position among the values of this build.
void LayerBuilder::note(const std::string& what, const std::vector<Value>& values) {
  notes_.push_back(what);
  for (const Value& v : values) {
    const auto found = std::find(values_.begin(), values_.end(), number_of(v));
    notes_.back() += " " + std::to_string(found - values_.begin()) + " " + v.shape().to_string();
  }
}

Value LayerBuilder::value(int number) {
  values_.push_back(number);
  return {this, number};
}

Value LayerBuilder::parameter(const std::string& name, const Shape& shape,
                              const std::string& initializer) {
  ParameterSpec spec{.name = name, .shape = shape, .initializer = initializer};
  if (shape.rank() >= 2 && shape.elements() > 0) {
    spec.fan_in = shape.elements() / shape[0];
    spec.fan_out = shape.elements() / shape[1];
  }
  return parameter(spec);
}

Value LayerBuilder::parameter(const ParameterSpec& spec) {
  int k = place_of(declared_.parameters, spec.name);
  if (declaring_) {
    if (k >= 0) refuse(name(), "requests the parameter `" + spec.name + "` twice");
    if (spec.name.empty()) refuse(name(), "a parameter has no name");
    k = static_cast<int>(declared_.parameters.size());
    declared_.parameters.push_back(spec);
    static_cast<Declaring&>(context_).declare_parameter(spec.shape);
  } else if (k < 0 || !(declared_.parameters[static_cast<size_t>(k)].shape == spec.shape)) {
    refuse(name(),
           "requests the parameter `" + spec.name + "` of " + spec.shape.to_string() +
               ", which an earlier build() did not request",
           why_the_same);
  }
  const Value made = value(context_.parameter(k));
  note("parameter " + spec.name, {made});
  return made;
}

Value LayerBuilder::state(const std::string& name, const Shape& shape, float initial) {
  int k = place_of(declared_.states, name);
  if (declaring_) {
    if (k >= 0) refuse(this->name(), "requests the state `" + name + "` twice");
    if (name.empty()) refuse(this->name(), "a state has no name");
    k = static_cast<int>(declared_.states.size());
    declared_.states.push_back({name, shape, initial});
    static_cast<Declaring&>(context_).declare_state(shape);
  } else if (k < 0 || !(declared_.states[static_cast<size_t>(k)].shape == shape)) {
    refuse(this->name(),
           "requests the state `" + name + "` of " + shape.to_string() +
               ", which an earlier build() did not request",
           why_the_same);
  }
  const Value made = value(context_.state(k));
  note("state " + name, {made});
  states_.emplace_back(made.number(), k);
  return made;
}

std::vector<int> LayerBuilder::add(OpPtr op, std::vector<int> inputs) {
  std::vector<Value> from, outputs;
  for (const int number : inputs) from.push_back(Value(this, number));
  note(std::string(op->type()), from);
  std::vector<int> numbers = context_.add(std::move(op), std::move(inputs));
  for (const int number : numbers) outputs.push_back(value(number));
  note("gives", outputs);
  return numbers;
}

int LayerBuilder::state_place(const Value& state) {
  const int number = number_of(state);
  const auto found = std::find_if(states_.begin(), states_.end(),
                                  [&](const auto& known) { return known.first == number; });
  if (found == states_.end()) {
    refuse(name(), "a rule needs a state, but received another value",
           "declare it with state(name, shape)");
  }
  if (std::find(followed_.begin(), followed_.end(), found->second) != followed_.end()) {
    refuse(name(), "the state `" + declared_.states[static_cast<size_t>(found->second)].name +
                       "` has two rules");
  }
  followed_.push_back(found->second);
  return found->second;
}

namespace {

void check_momentum(const std::string& layer, double momentum) {
  if (momentum >= 0 && momentum <= 1) return;
  refuse(layer, "momentum must be from 0 to 1, received " + std::to_string(momentum));
}

void check_same(const std::string& layer, const Shape& state, const Shape& value) {
  if (state == value) return;
  refuse(layer,
         "a state of " + state.to_string() + " cannot follow a value of " + value.to_string());
}

}  // namespace

void LayerBuilder::follow(StateRule rule, Value state, Value value, double momentum) {
  check_momentum(name(), momentum);
  check_same(name(), state.shape(), value.shape());
  const int k = state_place(state), from = number_of(value);
  note("rule " + std::to_string(static_cast<int>(rule)), {state, value});
  if (training()) context_.follow(rule, k, from, momentum);
}

void LayerBuilder::follow_mean(Value state, Value mean, double momentum) {
  follow(StateRule::mean, state, mean, momentum);
}

void LayerBuilder::add_sum(Value state, Value sum) { follow(StateRule::sum, state, sum, 1); }

void LayerBuilder::keep_maximum(Value state, Value maximum) {
  follow(StateRule::maximum, state, maximum, 1);
}

void LayerBuilder::follow_mean_and_variance(Value mean_state, Value variance_state, Value mean,
                                            Value variance, double momentum) {
  check_momentum(name(), momentum);
  check_same(name(), mean_state.shape(), mean.shape());
  check_same(name(), variance_state.shape(), variance.shape());
  check_same(name(), mean.shape(), variance.shape());
  const int k_mean = state_place(mean_state), k_variance = state_place(variance_state);
  const int from = number_of(mean), about = number_of(variance);
  note("moments", {mean_state, variance_state, mean, variance});
  if (training()) context_.follow(k_mean, k_variance, from, about, momentum);
}

// Returns the parameters and states that the layer requests for inputs of these shapes.
LayerBuilder::Declared BuiltLayer::declare(std::span<const Shape> inputs, bool training,
                                           const std::string& name,
                                           std::vector<std::string>& notes) const {
  LayerBuilder::Declared declared;
  Declaring context(training, name, inputs);
  LayerBuilder builder(context, declared, true);
  std::vector<Value> values;
  for (int v : context.values()) values.push_back(builder.value(v));
  builder.note("result", {build(builder, values)});
  notes = std::move(builder.notes_);
  return declared;
}

std::vector<ParameterSpec> BuiltLayer::parameters(std::span<const Shape> inputs) const {
  std::vector<std::string> notes;
  return declare(inputs, true, std::string(type()), notes).parameters;
}

std::vector<StateSpec> BuiltLayer::states(std::span<const Shape> inputs) const {
  std::vector<std::string> notes;
  return declare(inputs, true, std::string(type()), notes).states;
}

int BuiltLayer::lower(LoweringLayer& context, std::span<const int> inputs) const {
  std::vector<Shape> shapes, one;
  for (int v : inputs) {
    shapes.push_back(context.shape(v));
    one.push_back(shapes.back().with_batch(1));
  }
  // Parameters are numbered as for one observation in training mode.
  std::vector<std::string> notes;
  LayerBuilder::Declared declared = declare(one, true, context.name(), notes);
  declare(shapes, context.training(), context.name(), notes);
  LayerBuilder builder(context, declared, false);
  std::vector<Value> values;
  for (int v : inputs) values.push_back(builder.value(v));
  const Value result = build(builder, values);
  builder.note("result", {result});
  if (builder.notes_ != notes) {
    refuse(type(), "build() differs from an earlier call", why_the_same);
  }
  const int number = builder.number_of(result);
  const Shape& shape = context.shape(number);
  if (!shapes.empty() && (shape.rank() < 1 || shape[0] != shapes[0][0])) {
    refuse(type(),
           "build() gives " + shape.to_string() + " for " + std::to_string(shapes[0][0]) +
               " observations",
           "the first dimension of the result counts observations");
  }
  return number;
}

}  // namespace lockstep
