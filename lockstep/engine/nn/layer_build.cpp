// Builds of layers: to learn what they declare, and into a graph.
#include <algorithm>

#include "lockstep/base/counted.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layer_builder.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {

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
                                std::span<const LayerValue> inputs, int64_t steps,
                                bool in_segments) {
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
    const int earlier = in_segments ? graph.add_input({1}, DType::i32) : -1;
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
      refuse_layer(to.name, "build() differs from an earlier call", why_builds_agree);
    }
    const Shape& shape = to.graph.shape(result.value);
    const int64_t n = to.graph.shape(inputs[0].value)[0];
    if (shape.rank() < 1 || shape[0] != n) {
      refuse_layer(to.name,
                   "build() gives " + shape.to_string() + " for " + counted(n, "observation"),
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
    if (any && target.lowering.earlier >= 0) check_segments(builder);
    notes = std::move(builder.notes_);
    if (!any) {
      const bool made = builder.set_lengths_ && builder.set_lengths_->defined();
      const int value = builder.number_of(result);
      return {value, made ? builder.number_of(*builder.set_lengths_) : -1};
    }
    const int64_t n = graph.shape(first->value)[0];
    if (builder.by_step_) {
      const Shape shape = builder.spec_of(builder.position_of(result)).shape;
      if (shape.rank() < 1 || shape[0] != n * graph.shape(first->value)[1]) {
        refuse_layer(target.where, "build() gives " + shape.to_string() + " for " +
                                       counted(n * graph.shape(first->value)[1], "step"));
      }
      result = ops::reshaped(result, steps_apart(shape, n));
      return {builder.number_of(result), first->lengths};
    }
    const int value = builder.number_of(result);
    return {value, lengths_of(builder, graph, value, *first)};
  }

 private:
  // A layer that sees several steps must know that it sees segments.
  void check_segments(const LayerBuilder& builder) const {
    if (builder.by_step_ || layer.is_input() || builder.asked_for_segments_ ||
        !builder.by_row_.empty()) {
      return;
    }
    refuse_layer(layer.type(),
                 "needs other steps of a sequence and keeps none from segment to segment",
                 "predict() takes whole sequences");
  }

  // The steps of input number k as observations.
  Value steps(LayerBuilder& builder, size_t k, int first) const {
    Graph& graph = target.lowering.graph;
    const LoweredValue& in = inputs[k];
    if (in.lengths < 0) {
      refuse_layer(
          target.where,
          "some of its inputs are sequences, but input " + std::to_string(k + 1) + " is not",
          layer.type() == OutputsOptions::kType
              ? "all outputs are by step, or all by sequence: last_step gives one "
                "result for a sequence"
              : "");
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
                            std::span<const LayerValue> inputs, bool in_segments) {
  DeclaredLayer declared = LayerBuild::declared(layer, name, inputs, kDeclaredSteps, in_segments);
  if (std::ranges::none_of(inputs, &LayerValue::sequence)) return declared;
  const DeclaredLayer longer =
      LayerBuild::declared(layer, name, inputs, kDeclaredSteps + 1, in_segments);
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
