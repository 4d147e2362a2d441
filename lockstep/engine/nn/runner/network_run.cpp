#include <algorithm>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/inputs/input_statistics.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layers/normalized_values.h"
#include "lockstep/engine/nn/network_state.h"
#include "lockstep/engine/nn/runner/recorded_run.h"
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

// A vector that a run has computed.
std::vector<double> vector_of(const PlanRun& run, int output, int64_t count, Device device) {
  if (device.is_cpu()) {
    const float* const from = run.output(output);
    return {from, from + count};
  }
  const auto values = output_of(run, output, Shape{count}).to_vector();
  return {values.begin(), values.end()};
}

// Updates a state with a value of the mini-batch.
void follow(StateRule rule, const Tensor& state, const std::vector<double>& value,
            double momentum) {
  const int64_t count = state.shape().elements();
  if (state.device().is_cpu()) {
    update_state(rule, state.data<float>(), value.data(), count, momentum);
    return;
  }
  const Tensor host = state.to({});
  update_state(rule, host.data<float>(), value.data(), count, momentum);
  state.copy_from(host);
}

// Updates the states of `s`. Throws InvalidArgument if it is of a single value.
void follow(const MovingStatistics& s, const PlanRun& run, const std::vector<NetworkState>& states,
            bool update) {
  if (!update && !s.counted) return;
  const Tensor& state = states[static_cast<size_t>(s.mean_state)].value;
  const std::vector<double> mean = vector_of(run, s.mean_output, s.channels, state.device());
  if (s.counted) {
    require_several_values(s, mean.back(), "[network] ", "the mini-batch has");
    update = update && mean.back() > 0;
  }
  if (!update) return;
  follow(s.rule, state, mean, s.momentum);
  if (s.rule != StateRule::mean_and_variance) return;
  follow(s.rule, states[static_cast<size_t>(s.variance_state)].value,
         vector_of(run, s.variance_output, s.channels, state.device()), s.momentum);
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

}  // namespace

std::shared_ptr<NetworkRun> lend_run(const std::shared_ptr<NetworkPlan>& plan,
                                     PackedParameters& packed,
                                     const std::vector<NetworkState>& states) {
  const auto make = [&] {
    auto run = std::make_unique<NetworkRun>();
    std::vector<const float*> pointers;
    for (const auto& s : states) {
      run->states.push_back(Tensor(s.value.spec(), s.value.device()));
      pointers.push_back(static_cast<const float*>(run->states.back().raw()));
    }
    run->run = std::make_unique<PlanRun>(plan->plan, packed, pointers);
    return run;
  };
  const std::shared_ptr<NetworkRun> run = plan->idle.lend(plan->plan->device(), make);
  for (size_t i = 0; i < states.size(); ++i) {
    const Tensor& value = states[i].value;
    eager_copy(value.device(), run->states[i].raw(), value.raw(), value.bytes());
  }
  return run;
}

std::shared_ptr<NetworkPlan> Network::plan_for(int64_t n, const LoweringOptions& options,
                                               DType precision, bool gradients) {
  const NetworkPlanKey key{n, options, precision, gradients, kernels::choice()};
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
  PlanOptions plan_options;
  plan_options.gradients = plan_options.input_gradients = gradients;
  plan_options.precision = precision;
  auto made = std::make_shared<NetworkPlan>(compile(*this, std::move(lowered), plan_options));
  const size_t most = options.steps.empty() ? State::kMostPlans : State::kMostPlansOfSequences;
  while (plans.size() >= most) plans.pop_back();
  plans.emplace(plans.begin(), key, std::move(made));
  return plans.front().second;
}

namespace {

thread_local ForwardLimit forward_limit = ForwardLimit::none;

}  // namespace

LimitedForward::LimitedForward(ForwardLimit limit)
    : before_(std::exchange(forward_limit, std::max(limit, forward_limit))) {}
LimitedForward::~LimitedForward() { forward_limit = before_; }
ForwardLimit LimitedForward::now() { return forward_limit; }

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
  const std::vector<Tensor> lengths = sequence_lengths(inputs, options.lengths);
  const std::vector<int64_t> steps = steps_of(inputs, !lengths.empty());
  for (const Tensor& input : inputs) types.push_back(input.dtype());
  const std::shared_ptr<NetworkPlan> mine =
      plan_for(n, {options.training, types, options.outputs, options.carry, steps},
               options.precision, record);
  check_combined(mine->combined, lengths);
  if (!mine->draws.empty() && options.step == RandomContext{}) {
    throw InvalidArgument("[network] layer \"" + mine->draws +
                              "\" draws random numbers, and ForwardOptions::step is not given",
                          "give each mini-batch its own, .step = {seed, iteration} with iterations "
                          "from 1: the same step draws the same numbers");
  }
  const std::shared_ptr<NetworkRun> lent = lend_run(mine, packed(), state_->states);
  const std::shared_ptr<PlanRun> run(lent, lent->run.get());
  const ArithmeticMode mode;
  // A recorded gradient is refused if the parameters change before it is computed.
  std::vector<Digest> digests;
  if (record) {
    digests = packed().digests();
    packed().refresh(digests);
  } else {
    refresh_packed();
  }
  std::vector<RecordedRun::RowsRead> rows;
  for (size_t k = 0; k < lengths.size(); ++k) rows.push_back({mine->lengths[k], lengths[k]});
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
  // All are checked before any state changes.
  for (const auto& s : mine->statistics) follow(s, *run, state_->states, false);
  if (options.update_state) {
    for (const auto& s : mine->statistics) follow(s, *run, state_->states, true);
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

}  // namespace lockstep
