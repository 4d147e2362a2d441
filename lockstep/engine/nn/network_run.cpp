#include <algorithm>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/nn/input_statistics.h"
#include "lockstep/engine/nn/layer_builder.h"
#include "lockstep/engine/nn/network_state.h"
#include "lockstep/engine/nn/normalized_values.h"
#include "lockstep/engine/nn/recorded_run.h"
#include "lockstep/engine/tensor/reshape.h"

namespace lockstep {

void update_state(StateRule rule, float* state, const double* value, int64_t count,
                  double momentum) {
  if (rule == StateRule::sum) {
    for (int64_t i = 0; i < count; ++i) {
      state[i] = static_cast<float>(static_cast<double>(state[i]) + value[i]);
    }
  } else if (rule == StateRule::maximum) {
    for (int64_t i = 0; i < count; ++i) {
      state[i] = static_cast<float>(larger(static_cast<double>(state[i]), value[i]));
    }
  } else {
    update_moving(state, value, count, momentum);
  }
}

void update_moving(float* state, const double* statistic, int64_t count, double momentum) {
  for (int64_t i = 0; i < count; ++i) {
    state[i] = static_cast<float>((1 - momentum) * static_cast<double>(state[i]) +
                                  momentum * statistic[i]);
  }
}

namespace {

// Copies rows of `bytes` bytes each.
struct RowCopy {
  Device device;
  size_t bytes;
  void operator()(void* to, int64_t to_row, const void* from, int64_t from_row,
                  int64_t rows) const {
    eager_copy(device, static_cast<std::byte*>(to) + static_cast<size_t>(to_row) * bytes,
               static_cast<const std::byte*>(from) + static_cast<size_t>(from_row) * bytes,
               static_cast<size_t>(rows) * bytes);
  }
};

// The number of observations that predict() runs together. The kernels, and therefore the rounding,
// depend on the shape, so the number is fixed and independent of the caller's batch. On the CPU it
// is the size of a shard. A GPU needs more for good speed.
constexpr int64_t kPredictedTogether = 16, kPredictedTogetherOnGpu = 64;

// Updates a state with a value of the mini-batch that a run has computed.
void follow(StateRule rule, const Tensor& state, const PlanRun& run, int output, double momentum) {
  const int64_t count = state.shape().elements();
  if (state.device().is_cpu()) {
    const float* const from = run.output(output);
    const std::vector<double> statistic(from, from + count);
    update_state(rule, state.data<float>(), statistic.data(), count, momentum);
    return;
  }
  const auto values = output_of(run, output, state.shape()).to_vector();
  const std::vector<double> statistic(values.begin(), values.end());
  const Tensor host = state.to({});
  update_state(rule, host.data<float>(), statistic.data(), count, momentum);
  state.copy_from(host);
}

// A view of the first rows of a state by row.
Tensor first_rows(const Tensor& state, int64_t rows) {
  return Tensor::view(state.raw(), {state.shape().with_batch(rows), DType::f32, nullptr},
                      std::make_shared<const Tensor>(state));
}

// A copy of the gradient of parameter number `i`, after a backward run.
Tensor parameter_gradient(const PlanRun& run, size_t i, const Shape& shape) {
  const Plan& plan = run.plan();
  const auto& entry = plan.gradient_layout().entries[i];
  std::byte* const from = run.gradients() + entry.offset;
  Tensor result(shape, DType::f32, plan.device());
  if (entry.spec.row_major()) {
    eager_copy(plan.device(), result.raw(), from, result.bytes());
  } else if (plan.device().is_cpu()) {
    entry.spec.layout->to_row_major(from, result.raw());
  } else {
    const Tensor gradient = Tensor::view(from, entry.spec, nullptr, plan.device());
    result = reshaped_unrecorded(convert(gradient, entry.spec.plain()), shape);
  }
  return result;
}

// Returns a run that goes back to its plan after use, if the plan still exists.
std::shared_ptr<NetworkRun> lend(const std::shared_ptr<NetworkPlan>& plan, PackedParameters& packed,
                                 const std::vector<NetworkState>& states) {
  std::unique_ptr<NetworkRun> run;
  void* const stream = EagerStream::of_thread(plan->plan->device());
  {
    const MutexLock lock(plan->mutex);
    const auto found = std::find_if(plan->idle.rbegin(), plan->idle.rend(),
                                    [&](const auto& idle) { return idle->stream == stream; });
    if (found != plan->idle.rend()) {
      run = std::move(*found);
      plan->idle.erase(std::next(found).base());
    }
  }
  if (!run) {
    run = std::make_unique<NetworkRun>();
    run->stream = stream;
    std::vector<const float*> pointers;
    for (const auto& s : states) {
      run->states.push_back(Tensor(s.value.spec(), s.value.device()));
      pointers.push_back(static_cast<const float*>(run->states.back().raw()));
    }
    run->run = std::make_unique<PlanRun>(plan->plan, packed, pointers);
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const Tensor& value = states[i].value;
    eager_copy(value.device(), run->states[i].raw(), value.raw(), value.bytes());
  }
  return {run.release(), [owner = std::weak_ptr<NetworkPlan>(plan)](NetworkRun* used) {
            std::unique_ptr<NetworkRun> back(used);
            if (const auto home = owner.lock()) {
              const MutexLock lock(home->mutex);
              home->idle.push_back(std::move(back));
            }
          }};
}

}  // namespace

std::vector<MovingStatistics> LoweredNetwork::mark_statistics() {
  std::vector<MovingStatistics> marked = statistics;
  for (MovingStatistics& s : marked) {
    s.channels = graph.shape(s.mean_output).elements();
    s.mean_output = graph.mark_output(s.mean_output);
    s.variance_output = graph.mark_output(s.variance_output);
  }
  return marked;
}

std::vector<Carry> LoweredNetwork::mark_carries() {
  std::vector<Carry> marked = carries;
  for (Carry& carry : marked) carry.output = graph.mark_output(carry.output);
  return marked;
}

LoweredNetwork Network::lower(int64_t n, const LoweringOptions& options) const {
  if (!initialized()) throw InvalidArgument("[network] not initialized");
  const NetworkAnalysis a = state_->analyze();
  std::vector<size_t> results = a.output_layers;
  if (!options.outputs.empty()) results = state_->places_of(options.outputs);
  const std::vector<bool> needed = state_->needed_for(results, a.order);
  LoweredNetwork out;
  std::map<std::string, int> values;
  // The caller passes every input, whether the results depend on it or not.
  std::map<size_t, int> data;
  for (size_t i : a.order) {
    const Layer& layer = *state_->layers[i].layer;
    if (!layer.is_input()) continue;
    const size_t k = out.inputs.size();
    const DType type = k < options.inputs.size() ? options.inputs[k] : DType::f32;
    out.inputs.push_back(out.graph.add_input(data_shape(layer, n), type));
    data[i] = out.inputs.back();
  }
  for (size_t i : a.order) {
    const LayerNode& node = state_->layers[i];
    if (!needed[i]) continue;
    std::vector<int> inputs;
    if (node.layer->is_input()) inputs.push_back(data.at(i));
    for (const auto& name : node.inputs) inputs.push_back(values.at(name));
    const auto& owner = node.shares.empty() ? node.name : node.shares;
    const size_t owns = state_->places.at(owner);
    const LayerSlots& slots = state_->slots.at(owner);
    // Named as this node, so that layers with shared parameters draw different random numbers.
    values[node.name] =
        lower_layer(*node.layer,
                    {out.graph, node.name, options.training, a.parameters[owns], a.states[owns],
                     a.row_states[owns], slots.first_parameter, slots.first_state, out.statistics,
                     options.carry ? &out.carries : nullptr},
                    inputs);
  }
  for (size_t i : results) out.outputs.push_back(values.at(state_->layers[i].name));
  return out;
}

std::vector<size_t> Network::State::places_of(const std::vector<std::string>& names) const {
  std::vector<size_t> found;
  for (const auto& name : names) {
    const auto place = places.find(name);
    if (place == places.end()) {
      std::vector<std::string> known;
      for (const auto& node : layers) known.push_back(node.name);
      throw InvalidArgument("[network] no layer `" + name + "`, whose output is requested",
                            suggest(name, known));
    }
    if (std::find(found.begin(), found.end(), place->second) != found.end()) {
      throw InvalidArgument("[network] the output of `" + name + "` is requested twice");
    }
    found.push_back(place->second);
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
    for (const auto& name : layers[*i].inputs) needed[places.at(name)] = true;
  }
  return needed;
}

int64_t Network::check_inputs(std::span<const Tensor> inputs) const {
  const std::vector<Shape> wanted = input_shapes();
  if (inputs.size() != wanted.size()) {
    throw InvalidArgument("[network] takes " + std::to_string(wanted.size()) +
                          " inputs, received " + std::to_string(inputs.size()));
  }
  int64_t n = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape();
    if (i == 0 && shape.rank() > 0) n = shape[0];
    if (shape.rank() == 0 || !(shape.without_batch() == wanted[i]) || shape[0] != n || n < 1 ||
        (inputs[i].dtype() != DType::f32 && inputs[i].dtype() != DType::u8)) {
      throw InvalidArgument(
          "[network] input " + std::to_string(i + 1) + " must be n x " + wanted[i].to_string() +
          " of f32 or u8" +
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

std::shared_ptr<NetworkPlan> Network::plan_for(int64_t n, const LoweringOptions& options,
                                               DType precision, bool gradients) {
  std::string key = options.training ? "training" : "inference";
  key += " " + std::to_string(n) + (gradients ? " gradients" : "");
  for (const DType type : options.inputs) key += " " + std::string(name_of(type));
  key += " " + std::string(name_of(precision));
  for (const auto& name : options.outputs) key += " " + name;
  if (options.carry) key += " carry";
  const MutexLock lock(state_->mutex);
  auto& plans = state_->plans;
  const auto cached =
      std::find_if(plans.begin(), plans.end(), [&](const auto& p) { return p.first == key; });
  if (cached != plans.end()) {
    std::rotate(plans.begin(), cached, cached + 1);
    return plans.front().second;
  }
  LoweredNetwork lowered = lower(n, options);
  require_input_statistics(*this);
  if (options.training) require_values_to_normalize(lowered, "[network] ");
  auto made = std::make_shared<NetworkPlan>();
  PlanOptions plan_options;
  plan_options.gradients = plan_options.input_gradients = gradients;
  plan_options.total_output_gradients = gradients && lowered.outputs.size() > 1;
  plan_options.precision = precision;
  for (int value : lowered.outputs) {
    plan_options.differentiated.push_back(lowered.graph.mark_output(value));
  }
  for (int value : lowered.outputs) made->outputs.push_back(lowered.graph.shape(value));
  for (const Graph::Node& node : lowered.graph.nodes()) {
    if (made->draws.empty() && node.op->draws_random_numbers()) made->draws = node.name;
  }
  if (gradients) {
    made->function = std::make_shared<NetworkFunction>(lowered.graph, precision, device());
  }
  made->statistics = lowered.mark_statistics();
  made->carries = lowered.mark_carries();
  made->plan = std::make_shared<Plan>(lowered.graph, parameter_shapes(), plan_options, device());
  if (plans.size() == State::kMostPlans) plans.pop_back();
  plans.emplace(plans.begin(), key, std::move(made));
  return plans.front().second;
}

namespace {

thread_local ForwardLimit forward_limit = ForwardLimit::none;

}  // namespace

LimitedForward::LimitedForward(ForwardLimit limit)
    : before_(std::exchange(forward_limit, std::max(limit, forward_limit))) {}
LimitedForward::~LimitedForward() { forward_limit = before_; }

std::vector<Tensor> Network::forward_all(const std::vector<Tensor>& inputs,
                                         const ForwardOptions& given) {
  ForwardOptions options = given;
  if (forward_limit == ForwardLimit::predictions) {
    options.training = options.update_state = options.carry = false;
  }
  options.carry &= !state_->row_states.empty() && state_->forward_carries;
  if (options.carry && forward_limit == ForwardLimit::carry_refused) {
    throw InvalidArgument(
        "[network] forward() in a loss of shards cannot carry states by row, because shards are "
        "computed at once",
        "pass .carry = false, or run the network of the group by shard.forward()");
  }
  const int64_t n = check_inputs(inputs);
  std::vector<Tensor> tracked = inputs;
  for (const auto& l : state_->parameters) tracked.push_back(l.value);
  const bool record = options.record && Tape::any_tracks(tracked);
  std::vector<DType> types;
  for (const Tensor& input : inputs) types.push_back(input.dtype());
  const std::shared_ptr<NetworkPlan> mine = plan_for(
      n, {options.training, types, options.outputs, options.carry}, options.precision, record);
  if (!mine->draws.empty() && options.step == StepInfo{}) {
    throw InvalidArgument("[network] layer \"" + mine->draws +
                              "\" draws random numbers, and ForwardOptions::step is not given",
                          "give each mini-batch its own, .step = {seed, iteration} with iterations "
                          "from 1: the same step draws the same numbers");
  }
  const std::shared_ptr<NetworkRun> lent = lend(mine, packed(), state_->states);
  const std::shared_ptr<PlanRun> run(lent, lent->run.get());
  const ArithmeticMode mode;
  // Digests of a device's parameters require a copy to the host, so they are computed only if
  // necessary.
  std::vector<Digest> digests;
  if (record || device().is_cpu()) digests = packed().digests();
  packed().refresh(digests);
  std::vector<RecordedRun::RowsRead> rows;
  for (const Carry& carry : mine->carries) {
    const Tensor& state = state_->row_state(carry.name).value;
    if (state.shape()[0] < n) {
      throw InvalidArgument("[network] there are " + std::to_string(n) +
                                " observations, but the states by row are made for " +
                                std::to_string(made_rows()),
                            "call make_row_states(rows) with the largest number of observations");
    }
    // A later gradient uses the same values.
    rows.push_back({carry.input, first_rows(state, n).clone()});
  }
  RecordedRun recorded({.run = run.get(),
                        .inputs = inputs,
                        .rows = std::move(rows),
                        .outputs = mine->outputs,
                        .step = options.step});
  recorded.forward();
  std::vector<Tensor> outputs = recorded.outputs();
  if (options.update_state) {
    for (const auto& s : mine->statistics) {
      follow(s.rule, state_->states[static_cast<size_t>(s.mean_state)].value, *run, s.mean_output,
             s.momentum);
      if (s.rule != StateRule::mean_and_variance) continue;
      follow(s.rule, state_->states[static_cast<size_t>(s.variance_state)].value, *run,
             s.variance_output, s.momentum);
    }
  }
  for (const Carry& carry : mine->carries) {
    const Tensor to = first_rows(state_->row_state(carry.name).value, n);
    to.copy_from(output_of(*run, carry.output, to.shape()));
  }
  if (!record) {
    if (options.record) Tape::record_everywhere(tracked, outputs, nullptr);
    return outputs;
  }
  // The node keeps everything that its run refers to for as long as the tape exists, because the
  // network may be destroyed or initialized again. Gradients after a change of parameters would
  // match neither the old nor the new values, so they throw.
  Tape::record_everywhere(
      tracked, outputs,
      [lent, mine, packed = state_->packed, digests, tracked, inputs = inputs.size(),
       step = options.step, recorded = std::move(recorded)](const std::vector<Tensor>& diffs,
                                                            const std::vector<bool>& need) mutable {
        const auto check = [packed, digests] {
          if (packed->digests() == digests) return;
          throw InvalidArgument("[network] parameters were changed between forward and gradient",
                                "compute the gradients of a tape before changing the parameters");
        };
        check();
        const ArithmeticMode fixed;
        packed->refresh(digests);  // a forward run with other values may have come between
        std::vector<Tensor> results = recorded.backward(diffs, need);
        for (size_t i = inputs; i < tracked.size(); ++i) {
          if (need[i]) results[i] = parameter_gradient(*lent->run, i - inputs, tracked[i].shape());
        }
        if (!Tape::any_records()) return results;
        const auto first = tracked.begin(), parameters = first + static_cast<ptrdiff_t>(inputs);
        const NetworkFunction::Computed computed{.inputs = {first, parameters},
                                                 .parameters = {parameters, tracked.end()},
                                                 .states = lent->states,
                                                 .output_gradients = diffs,
                                                 .needed = need,
                                                 .step = step,
                                                 .rows = recorded.rows(),
                                                 .check = check};
        const auto beyond = static_cast<ptrdiff_t>(tracked.size());
        std::vector<Tensor> gradients(results.begin(), results.begin() + beyond);
        mine->function->record(computed, gradients);
        std::copy(gradients.begin(), gradients.end(), results.begin());
        return results;
      },
      Tape::Outputs::linked);
  return outputs;
}

Tensor Network::forward(const std::vector<Tensor>& inputs, const ForwardOptions& options) {
  return forward_all(inputs, options).front();
}

Tensor Network::predict(const Tensor& input) {
  const int64_t n = check_inputs(std::span(&input, 1));
  const bool on_cpu = device().is_cpu();
  const int64_t rows = on_cpu ? kPredictedTogether : kPredictedTogetherOnGpu;
  const std::shared_ptr<NetworkPlan> mine =
      plan_for(rows, {.inputs = {input.dtype()}}, DType::f32, false);
  const std::shared_ptr<NetworkRun> run = lend(mine, packed(), state_->states);
  const ArithmeticMode mode;
  packed().refresh(on_cpu ? packed().digests() : std::vector<Digest>());
  const Tensor plain = convert(input, input.spec().plain());
  Tensor result(mine->outputs[0].with_batch(n), DType::f32, device());
  const RowCopy in{device(), plain.bytes() / static_cast<size_t>(n)};
  const RowCopy out{device(), result.bytes() / static_cast<size_t>(n)};
  const int64_t padding = (rows - n % rows) % rows;
  const Tensor zeros = Tensor::zeros(input.shape().with_batch(std::max<int64_t>(padding, 1)),
                                     input.dtype(), device());
  PlanRun& plan = *run->run;
  for (int64_t first = 0; first < n; first += rows) {
    const int64_t some = std::min(rows, n - first);
    in(plan.input(0), 0, plain.raw(), first, some);
    if (some < rows) in(plan.input(0), some, zeros.raw(), 0, padding);
    plan.forward({});
    plan.join();
    out(result.raw(), first, plan.output(0), 0, some);
  }
  return result;
}

}  // namespace lockstep
