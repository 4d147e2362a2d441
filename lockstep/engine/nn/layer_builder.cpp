#include "lockstep/engine/nn/layer_builder.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/attention/attention.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/ops/networks/steps.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {

namespace {

template <class Spec>
int index_of(const std::vector<Spec>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const Spec& s) { return s.name == name; });
  return found == specs.end() ? -1 : static_cast<int>(found - specs.begin());
}

// Returns the index of a parameter or state in `known`, to which it is added if `declared` is not
// null.
template <class Spec>
int requested(std::string_view type, const char* kind, const Spec& spec,
              const std::vector<Spec>& known, std::vector<Spec>* declared) {
  const std::string what = std::string(kind) + " `" + spec.name + "`";
  const int k = index_of(known, spec.name);
  if (declared) {
    if (k >= 0) refuse_layer(type, "requests the " + what + " twice");
    if (spec.name.empty()) refuse_layer(type, "a " + std::string(kind) + " has no name");
    declared->push_back(spec);
    return static_cast<int>(declared->size()) - 1;
  }
  if (k < 0 || !(known[static_cast<size_t>(k)].shape == spec.shape)) {
    refuse_layer(type,
                 "requests the " + what + " of " + spec.shape.to_string() +
                     ", which an earlier build() did not request",
                 why_builds_agree);
  }
  return k;
}

void check_momentum(std::string_view type, double momentum) {
  if (momentum >= 0 && momentum <= 1) return;
  refuse_layer(type, "momentum must be from 0 to 1, received " + std::to_string(momentum));
}

}  // namespace

void refuse_layer(std::string_view type, const std::string& what, const std::string& hint) {
  throw InvalidArgument("[" + std::string(type) + "] " + what, hint);
}

bool LayerBuilder::training() const { return target_.lowering.training; }

const std::string& LayerBuilder::name() const { return target_.lowering.name; }

bool LayerBuilder::in_segments() {
  asked_for_segments_ = true;
  return target_.lowering.earlier >= 0;
}

TensorSpec LayerBuilder::spec_of(int value) const {
  const LayerLowering& to = target_.lowering;
  const Built& built = values_[static_cast<size_t>(value)];
  if (built.number >= 0) return to.graph.spec(built.number);
  const auto k = static_cast<size_t>(built.k);
  return {built.parameter ? to.parameters[k].shape : to.states[k].shape, DType::f32, nullptr};
}

int LayerBuilder::position_of(const Value& value) const {
  if (value.builder() == this) return value.number();
  if (!value.defined()) {
    refuse_layer(target_.where, "an undefined value was used, or returned by build()");
  }
  refuse_layer(target_.where, "a value of another layer, or of another call of build(), was used");
}

int LayerBuilder::number_of(const Value& value) { return number_at(position_of(value)); }

// Parameters and states enter the graph when an op reads them.
int LayerBuilder::number_at(int position) {
  const LayerLowering& to = target_.lowering;
  Built& built = values_[static_cast<size_t>(position)];
  if (built.number < 0) {
    const Shape shape = spec_of(position).shape;
    built.number = built.parameter ? to.graph.add_parameter(to.first_parameter + built.k, shape)
                                   : to.graph.add_state(to.first_state + built.k, shape);
  }
  return built.number;
}

// Notes one call of build(), so that two different builds have different notes.
void LayerBuilder::note(const std::string& what, const std::vector<Value>& values) {
  notes_.push_back(what);
  for (const Value& v : values) {
    const int position = position_of(v);
    notes_.back() += " " + std::to_string(position) + " " + spec_of(position).shape.to_string();
  }
}

Value LayerBuilder::value(const Built& built) {
  values_.push_back(built);
  return {this, static_cast<int>(values_.size()) - 1};
}

std::vector<Value> LayerBuilder::values(std::span<const int> numbers) {
  std::vector<Value> all;
  for (const int number : numbers) all.push_back(value({number, false, -1}));
  return all;
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
  auto* const declared = target_.declared ? &target_.declared->parameters : nullptr;
  const int k = requested(target_.where, "parameter", spec, target_.lowering.parameters, declared);
  const Value made = value({-1, true, k});
  note("parameter " + spec.name, {made});
  return made;
}

Value LayerBuilder::state(const std::string& name, const Shape& shape, float initial) {
  auto* const declared = target_.declared ? &target_.declared->states : nullptr;
  const StateSpec spec{name, shape, initial};
  const int k = requested(target_.where, "state", spec, target_.lowering.states, declared);
  const Value made = value({-1, false, k});
  note("state " + name, {made});
  return made;
}

std::vector<int> LayerBuilder::add(OpPtr op, std::vector<int> inputs) {
  std::vector<Value> from, outputs;
  std::vector<int> numbers, positions;
  std::vector<TensorSpec> specs;
  for (const int position : inputs) {
    from.push_back(Value(this, position));
    numbers.push_back(number_at(position));
    specs.push_back(spec_of(position));
  }
  note(std::string(op->type()), from);
  if (target_.declared) op->infer(specs);
  for (const int number : target_.lowering.graph.add(std::move(op), std::move(numbers), name())) {
    outputs.push_back(value({number, false, -1}));
    positions.push_back(outputs.back().number());
  }
  note("gives", outputs);
  return positions;
}

int LayerBuilder::state_of(const Value& value) {
  const Built& built = values_[static_cast<size_t>(position_of(value))];
  if (built.parameter || built.k < 0) {
    refuse_layer(target_.where, "a rule needs a state, but received another value",
                 "declare it with state(name, shape)");
  }
  if (std::find(followed_.begin(), followed_.end(), built.k) != followed_.end()) {
    refuse_layer(target_.where, "the state `" +
                                    target_.lowering.states[static_cast<size_t>(built.k)].name +
                                    "` has two rules");
  }
  followed_.push_back(built.k);
  return built.k;
}

void LayerBuilder::check_same(const Value& state, const Value& value) const {
  const TensorSpec given = spec_of(position_of(value));
  const Shape to = spec_of(position_of(state)).shape, from = given.shape;
  if (given.dtype != DType::f32) {
    refuse_layer(target_.where,
                 "a state cannot follow a value of " + std::string(name_of(given.dtype)),
                 "convert it by ops::astype(value, DType::f32)");
  }
  if (to == from) return;
  refuse_layer(target_.where,
               "a state of " + to.to_string() + " cannot follow a value of " + from.to_string());
}

void LayerBuilder::follow(StateRule rule, Value state, Value value, double momentum) {
  refuse_by_step("a rule of a state");
  check_momentum(target_.where, momentum);
  check_same(state, value);
  const int k = target_.lowering.first_state + state_of(state);
  const int from = number_of(value);
  note("rule " + std::to_string(static_cast<int>(rule)), {state, value});
  if (training()) target_.lowering.statistics.push_back({k, k, from, from, momentum, rule});
}

void LayerBuilder::follow_mean(Value state, Value mean, double momentum) {
  follow(StateRule::mean, state, mean, momentum);
}

void LayerBuilder::add_sum(Value state, Value sum) { follow(StateRule::sum, state, sum, 1); }

void LayerBuilder::keep_maximum(Value state, Value maximum) {
  follow(StateRule::maximum, state, maximum, 1);
}

void LayerBuilder::follow_moments(const Value& mean_state, const Value& variance_state,
                                  const Value& mean, const Value& variance, const Value* count,
                                  double momentum) {
  refuse_by_step("a rule of a state");
  check_momentum(target_.where, momentum);
  check_same(mean_state, mean);
  check_same(variance_state, variance);
  check_same(mean_state, variance);
  const int first = target_.lowering.first_state;
  const int k_mean = first + state_of(mean_state), k_variance = first + state_of(variance_state);
  note("moments", {mean_state, variance_state, mean, variance});
  if (!training()) return;
  // The count travels as the last element of both outputs.
  const auto number = [&](const Value& of) {
    return number_of(count != nullptr ? ops::concat({of, *count}, 0) : of);
  };
  // LoweredNetwork::mark_statistics() replaces the values by numbers of outputs.
  MovingStatistics rule{k_mean, k_variance, number(mean), number(variance), momentum};
  rule.counted = count != nullptr;
  rule.layer = name();
  target_.lowering.statistics.push_back(rule);
}

void LayerBuilder::follow_mean_and_variance(Value mean_state, Value variance_state, Value mean,
                                            Value variance, double momentum) {
  follow_moments(mean_state, variance_state, mean, variance, nullptr, momentum);
}

void LayerBuilder::follow_mean_and_variance(Value mean_state, Value variance_state, Value mean,
                                            Value variance, Value count, double momentum) {
  const TensorSpec spec = spec_of(position_of(count));
  if (spec.dtype != DType::f32 || !(spec.shape == Shape{1}) || mean.shape().rank() != 1) {
    refuse_layer(target_.where,
                 "statistics with a count need vectors, and a count of 1 number of f32, received " +
                     mean.shape().to_string() + " and " + spec.to_string());
  }
  follow_moments(mean_state, variance_state, mean, variance, &count, momentum);
}

Value LayerBuilder::row_state(const std::string& name, const Shape& row, float initial) {
  refuse_by_step("a state by row");
  const LayerLowering& to = target_.lowering;
  auto* const declared = target_.declared ? &target_.declared->row_states : nullptr;
  requested(target_.where, "state by row", StateSpec{name, row, initial}, to.row_states, declared);
  const Shape shape = batch_shape(spec_of(0).shape[0], row);
  Value made;
  if (to.carries) {
    const int input = to.graph.add_input(shape, DType::f32);
    to.carries->push_back(
        {this->name() + "." + name, to.graph.values()[static_cast<size_t>(input)].slot});
    made = value({input, false, -1});
  } else {
    made = ops::full_like(Value(this, 0), shape, static_cast<double>(initial));
  }
  by_row_.push_back({name, made.number()});
  note("row state " + name, {made});
  return made;
}

void LayerBuilder::carry(Value state, Value next) {
  const int position = position_of(state);
  const auto found = std::find_if(by_row_.begin(), by_row_.end(),
                                  [&](const ByRow& known) { return known.position == position; });
  if (found == by_row_.end()) {
    refuse_layer(target_.where, "carry() needs a state by row, but received another value",
                 "declare it with row_state(name, row)");
  }
  if (found->carried)
    refuse_layer(target_.where, "the state by row `" + found->name + "` is carried twice");
  check_same(state, next);
  found->carried = true;
  note("carry", {state, next});
  const int value = number_of(next);
  if (!target_.lowering.carries) return;
  const auto first = target_.lowering.carries->end() - static_cast<ptrdiff_t>(by_row_.size());
  first[found - by_row_.begin()].output = value;
}

void LayerBuilder::require_segments(const char* what) {
  if (in_segments()) return;
  refuse_layer(target_.where,
               std::string(what) + ", but the network does not run segment by segment",
               "ask in_segments() first");
}

Value LayerBuilder::earlier_steps() {
  require_segments("asks for earlier steps");
  return value({target_.lowering.earlier, false, -1});
}

Value LayerBuilder::with_earlier_steps(const std::string& name, const Value& x) {
  refuse_by_step("keeping steps");
  const Value before = ops::expand_dims(ops::astype(earlier_steps(), DType::f32), 1);
  const LayerLowering& to = target_.lowering;
  const Shape shape = x.shape();
  if (target_.declared) {
    target_.declared->steps.push_back({name, shape_of_dims({}, shape.dims(), 2), 0});
  }
  const Shape kept = shape_of_dims({shape[0], to.capacity}, shape.dims(), 2);
  Value earlier;
  if (to.carries) {
    const int input = to.graph.add_input(kept, DType::f32);
    to.carries->push_back({this->name() + "." + name,
                           to.graph.values()[static_cast<size_t>(input)].slot, number_of(x), true});
    earlier = value({input, false, -1});
  } else {
    earlier = ops::full_like(Value(this, 0), kept, 0);
  }
  by_row_.push_back({name, earlier.number(), true});
  note("keep steps " + name, {x});
  const auto capacity = static_cast<double>(to.capacity), last = static_cast<double>(shape[1] - 1);
  const Value step = ops::arange(before, 0, capacity);
  // A generated token: one pass instead of two copies.
  if (shape[1] == 1 && shape[0] * to.capacity <= kernels::kMostSteps) {
    std::vector<int64_t> of_steps(static_cast<size_t>(shape.rank()), 1);
    of_steps[0] = shape[0];
    of_steps[1] = to.capacity;
    return ops::where(ops::reshaped(ops::less(step, before), Shape(of_steps)), earlier, x);
  }
  const Value of_segment = ops::minimum(step - before, last) + capacity;
  return ops::chosen_steps(ops::concat({earlier, x}, 1),
                           ops::where(ops::less(step, before), step, of_segment));
}

void LayerBuilder::limit_steps(int64_t most) {
  require_segments("limits the steps of segments");
  if (target_.declared) {
    target_.declared->most_steps = std::min(target_.declared->most_steps, most);
  }
}

void LayerBuilder::check_carried() const {
  for (const ByRow& known : by_row_) {
    if (known.carried) continue;
    refuse_layer(target_.where, "the state by row `" + known.name + "` is not carried",
                 "call carry(state, next) once in build()");
  }
}

void LayerBuilder::refuse_by_step(const char* what) const {
  if (!by_step_) return;
  refuse_layer(target_.where,
               std::string(what) +
                   " is not possible in a layer that is applied to each step of a "
                   "sequence",
               "a layer of your own may take whole sequences (kTakesSequences)");
}

Value LayerBuilder::lengths(const Value& input) {
  const auto k = static_cast<size_t>(position_of(input));
  if (k >= lengths_.size() || lengths_[k] < 0) return {};
  return Value(this, lengths_[k]);
}

void LayerBuilder::set_lengths(const Value& lengths) {
  if (lengths.defined()) {
    const TensorSpec spec = spec_of(position_of(lengths));
    if (spec.dtype != DType::i32 || !(spec.shape == Shape{spec_of(0).shape[0]})) {
      refuse_layer(target_.where, "lengths must be n numbers of i32, received " + spec.to_string());
    }
  }
  note(lengths.defined() ? "lengths" : "no lengths", {});
  set_lengths_ = lengths;
}

}  // namespace lockstep
