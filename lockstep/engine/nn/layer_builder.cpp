#include "lockstep/engine/nn/layer_builder.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/sequences.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {

// The graph that a build extends. In a build that declares, `declared` receives its requests.
struct LayerBuilder::Target {
  std::string_view where;  // in errors: the layer's type; of a network's layer, its name
  LayerLowering lowering;
  DeclaredLayer* declared = nullptr;
};

namespace {

template <class Spec>
int index_of(const std::vector<Spec>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const Spec& s) { return s.name == name; });
  return found == specs.end() ? -1 : static_cast<int>(found - specs.begin());
}

[[noreturn]] void refuse_layer(std::string_view type, const std::string& what,
                               const std::string& hint = {}) {
  throw InvalidArgument("[" + std::string(type) + "] " + what, hint);
}

constexpr const char* why_the_same =
    "build() may depend only on the layer's fields and the shape of an observation";

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
                 why_the_same);
  }
  return k;
}

void check_momentum(std::string_view type, double momentum) {
  if (momentum >= 0 && momentum <= 1) return;
  refuse_layer(type, "momentum must be from 0 to 1, received " + std::to_string(momentum));
}

}  // namespace

bool LayerBuilder::training() const { return target_.lowering.training; }

const std::string& LayerBuilder::name() const { return target_.lowering.name; }

bool LayerBuilder::in_pieces() {
  asked_for_pieces_ = true;
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

void LayerBuilder::follow_mean_and_variance(Value mean_state, Value variance_state, Value mean,
                                            Value variance, double momentum) {
  refuse_by_step("a rule of a state");
  check_momentum(target_.where, momentum);
  check_same(mean_state, mean);
  check_same(variance_state, variance);
  check_same(mean_state, variance);
  const int first = target_.lowering.first_state;
  const int k_mean = first + state_of(mean_state), k_variance = first + state_of(variance_state);
  const int from = number_of(mean), about = number_of(variance);
  note("moments", {mean_state, variance_state, mean, variance});
  // LoweredNetwork::mark_statistics() replaces the values by numbers of outputs.
  if (training()) {
    target_.lowering.statistics.push_back({k_mean, k_variance, from, about, momentum});
  }
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

Value LayerBuilder::earlier_steps() {
  if (!in_pieces()) {
    refuse_layer(target_.where, "asks for earlier steps, but the network does not run in pieces",
                 "ask in_pieces() first");
  }
  return value({target_.lowering.earlier, false, -1});
}

Value LayerBuilder::with_earlier_steps(const std::string& name, const Value& x) {
  refuse_by_step("keeping steps");
  const Value before = ops::expand_dims(ops::astype(earlier_steps(), DType::f32), 1);
  const LayerLowering& to = target_.lowering;
  const Shape shape = x.shape();
  const int64_t n = shape[0], steps = shape[1], room = to.capacity + steps;
  // Positions are whole numbers of f32.
  if (n * room > int64_t{1} << 24) {
    refuse_layer(target_.where, "cannot keep " + std::to_string(to.capacity) + " steps of " +
                                    std::to_string(n) + " observations");
  }
  if (target_.declared) {
    target_.declared->steps.push_back({name, shape_of_dims({}, shape.dims(), 2), 0});
  }
  const Shape kept = shape_of_dims({n, to.capacity}, shape.dims(), 2);
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
  const Value both = ops::concat({earlier, x}, 1);
  const auto count = [&](int64_t end) { return ops::arange(before, 0, static_cast<double>(end)); };
  const Value step = count(to.capacity);
  const Value from_piece = ops::minimum(step - before, static_cast<double>(steps - 1)) +
                           static_cast<double>(to.capacity);
  const Value row = ops::expand_dims(count(n) * static_cast<double>(room), 1);
  const Value at = ops::where(ops::less(step, before), step, from_piece) + row;
  const Value all = ops::reshaped(both, steps_together(both.shape()));
  const Value taken =
      ops::take(all, ops::reshaped(ops::astype(at, DType::i32), Shape{n * to.capacity}), 0);
  return ops::reshaped(taken, steps_apart(taken.shape(), n));
}

void LayerBuilder::limit_steps(int64_t most) {
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
               "normalize sequences by layer_normalization; a layer of your own may take whole "
               "sequences (kTakesSequences)");
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

namespace {

// Steps of the sequences for which layers declare what they need: any number.
constexpr int64_t kDeclaredSteps = 2;

}  // namespace

// One build of a layer.
struct LayerBuild {
  const Layer& layer;
  const LayerBuilder::Target& target;
  std::span<const LoweredValue> inputs;
  std::optional<bool> sequence = {};  // whether the result is one, if that is known
  std::vector<std::string> notes = {};

  // Builds the layer for sequences of `steps` steps.
  static DeclaredLayer declared(const Layer& layer, const std::string& name,
                                std::span<const LayerValue> inputs, int64_t steps, bool in_pieces) {
    DeclaredLayer declared;
    Graph graph;
    std::vector<MovingStatistics> statistics;
    std::vector<LoweredValue> values;
    for (const LayerValue& in : inputs) {
      const Shape shape =
          in.sequence ? shape_of_dims({in.shape[0], steps}, in.shape.dims(), 2) : in.shape;
      values.push_back({graph.add_input(shape, in.type), -1});
      if (in.sequence) values.back().lengths = graph.add_input({in.shape[0]}, DType::i32);
    }
    const int earlier = in_pieces ? graph.add_input({1}, DType::i32) : -1;
    const LayerBuilder::Target target{
        layer.type(),
        {graph, name, true, declared.parameters, declared.states, declared.row_states, 0, 0,
         statistics, nullptr, false, earlier, kStepsForQuestions},
        &declared};
    LayerBuild build{layer, target, values};
    const LoweredValue result = build.run();
    const TensorSpec spec = graph.spec(result.value);
    declared.result = {spec.shape, spec.dtype, result.lengths >= 0};
    return declared;
  }

  // Adds the layer to a graph, after a build apart.
  static LoweredValue lowered(const Layer& layer, const LayerLowering& to,
                              std::span<const LoweredValue> inputs) {
    // What differs in a second build would differ from shard to shard.
    Graph apart;
    std::vector<MovingStatistics> unused;
    std::vector<Carry> carries;
    std::vector<LoweredValue> again;
    for (const LoweredValue& in : inputs) {
      const TensorSpec spec = to.graph.spec(in.value);
      again.push_back({apart.add_input(spec.shape, spec.dtype), -1});
      if (in.lengths >= 0) {
        again.back().lengths = apart.add_input(to.graph.shape(in.lengths), DType::i32);
      }
    }
    const int earlier =
        to.earlier < 0 ? -1 : apart.add_input(to.graph.shape(to.earlier), DType::i32);
    const LayerLowering other{
        apart,         to.name, to.training, to.parameters, to.states,
        to.row_states, 0,       0,           unused,        to.carries ? &carries : nullptr,
        to.sequence,   earlier, to.capacity};
    const LayerBuilder::Target first{to.name, other}, second{to.name, to};
    LayerBuild one{layer, first, again, to.sequence}, two{layer, second, inputs, to.sequence};
    one.run();
    const LoweredValue result = two.run();
    if (one.notes != two.notes) {
      refuse_layer(to.name, "build() differs from an earlier call", why_the_same);
    }
    const Shape& shape = to.graph.shape(result.value);
    const int64_t n = to.graph.shape(inputs[0].value)[0];
    if (shape.rank() < 1 || shape[0] != n) {
      refuse_layer(
          to.name,
          "build() gives " + shape.to_string() + " for " + std::to_string(n) + " observations",
          "the first dimension of the result counts observations");
    }
    return result;
  }

  LoweredValue run() {
    LayerBuilder builder(target);
    Graph& graph = target.lowering.graph;
    const auto first = std::ranges::find_if(inputs, [](const auto& in) { return in.lengths >= 0; });
    const bool any = first != inputs.end();
    builder.by_step_ = any && !layer.takes_sequences();
    std::vector<Value> values;
    for (const LoweredValue& in : inputs) values.push_back(builder.value({in.value, false, -1}));
    if (builder.by_step_) {
      for (size_t k = 0; k < values.size(); ++k) values[k] = steps(builder, k, first->value);
    } else {
      for (const LoweredValue& in : inputs) {
        builder.lengths_.push_back(
            in.lengths < 0 ? -1 : builder.value({in.lengths, false, -1}).number());
      }
    }
    builder.notes_.clear();  // how the steps were found does not matter
    Value result = layer.build(builder, values);
    builder.note("result", {result});
    builder.check_carried();
    if (any && target.lowering.earlier >= 0) check_pieces(builder);
    notes = std::move(builder.notes_);
    if (!any) return {builder.number_of(result), -1};
    const int64_t n = graph.shape(first->value)[0];
    if (builder.by_step_) {
      const Shape shape = builder.spec_of(builder.position_of(result)).shape;
      if (shape.rank() < 1 || shape[0] != n * graph.shape(first->value)[1]) {
        refuse_layer(target.where, "build() gives " + shape.to_string() + " for " +
                                       std::to_string(n * graph.shape(first->value)[1]) + " steps");
      }
      result = ops::reshaped(result, steps_apart(shape, n));
      return {builder.number_of(result), first->lengths};
    }
    const int value = builder.number_of(result);
    return {value, lengths_of(builder, graph, value, *first)};
  }

 private:
  // A layer that sees several steps must know that it sees pieces.
  void check_pieces(const LayerBuilder& builder) const {
    if (builder.by_step_ || layer.is_input() || builder.asked_for_pieces_ ||
        !builder.by_row_.empty()) {
      return;
    }
    refuse_layer(layer.type(), "needs other steps of a sequence and keeps none from piece to piece",
                 "predict() takes whole sequences");
  }

  // The steps of input number k as observations.
  Value steps(LayerBuilder& builder, size_t k, int first) const {
    Graph& graph = target.lowering.graph;
    const LoweredValue& in = inputs[k];
    if (in.lengths < 0) {
      refuse_layer(target.where, "some of its inputs are sequences, but input " +
                                     std::to_string(k + 1) + " is not");
    }
    const Shape &shape = graph.shape(in.value), &other = graph.shape(first);
    if (shape[1] != other[1]) {
      refuse_layer(target.where, "its inputs are sequences of different lengths");
    }
    const int known = reshaped_from(graph, in.value, steps_together(shape));
    if (known >= 0) return builder.value({known, false, -1});
    return ops::reshaped(Value(&builder, static_cast<int>(k)), steps_together(shape));
  }

  int lengths_of(LayerBuilder& builder, const Graph& graph, int value,
                 const LoweredValue& first) const {
    if (builder.set_lengths_) {
      return builder.set_lengths_->defined() ? builder.number_of(*builder.set_lengths_) : -1;
    }
    const Shape &shape = graph.shape(value), &from = graph.shape(first.value);
    const bool like_input =
        shape.rank() >= std::max(from.rank(), 2) && shape[1] == from[1] && from.rank() > 1;
    return sequence.value_or(like_input) ? first.lengths : -1;
  }
};

Shape data_shape(const Layer& input, int64_t n, int64_t steps) {
  std::vector<int64_t> first{n};
  if (input.is_sequence_input()) first.push_back(steps);
  return shape_of_dims(std::move(first), input.input_shape().dims(), 0);
}

Shape LayerValue::each() const { return shape_of_dims({}, shape.dims(), sequence ? 2 : 1); }

std::string LayerValue::to_string() const {
  if (!sequence) return each().to_string();
  return shape.rank() == 2 ? "steps" : "steps x " + each().to_string();
}

namespace {

bool same_shapes(const std::vector<StateSpec>& a, const std::vector<StateSpec>& b) {
  return std::ranges::equal(a, b, {}, &StateSpec::shape, &StateSpec::shape);
}

}  // namespace

DeclaredLayer declare_layer(const Layer& layer, const std::string& name,
                            std::span<const LayerValue> inputs, bool in_pieces) {
  DeclaredLayer declared = LayerBuild::declared(layer, name, inputs, kDeclaredSteps, in_pieces);
  if (std::ranges::none_of(inputs, &LayerValue::sequence)) return declared;
  const DeclaredLayer longer =
      LayerBuild::declared(layer, name, inputs, kDeclaredSteps + 1, in_pieces);
  if (!std::ranges::equal(declared.parameters, longer.parameters, {}, &ParameterSpec::shape,
                          &ParameterSpec::shape) ||
      !same_shapes(declared.states, longer.states) ||
      !same_shapes(declared.row_states, longer.row_states)) {
    refuse_layer(layer.type(),
                 "its parameters or states depend on the number of steps, which differs between "
                 "sequences");
  }
  declared.result.sequence &= longer.result.sequence;
  if (!declared.result.sequence && !(declared.result.shape == longer.result.shape)) {
    refuse_layer(layer.type(), "its result depends on the number of steps, but is not a sequence",
                 "set_lengths() makes a sequence of it");
  }
  return declared;
}

LoweredValue lower_layer(const Layer& layer, const LayerLowering& to,
                         std::span<const LoweredValue> inputs) {
  return LayerBuild::lowered(layer, to, inputs);
}

}  // namespace lockstep
