#include "lockstep/train/programs/shard.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/runner/recorded_run.h"
#include "lockstep/train/programs/shard_state.h"

namespace lockstep {

using shards::refuse;

int64_t Shard::first() const { return state_.range.first; }
int64_t Shard::size() const { return state_.range.count; }
const RandomContext& Shard::step() const { return state_.step; }

const Tensor& Shard::operator[](size_t i) const {
  if (i >= state_.tensors()) {
    refuse("the mini-batch has " + std::to_string(state_.tensors()) + " tensors, but number " +
           std::to_string(i) + " is requested");
  }
  return state_.rows[i];
}

const Tensor& Shard::lengths(size_t i) const {
  const std::optional<size_t> at = (*this)[i].defined() ? state_.lengths_at(i) : std::nullopt;
  if (!at) {
    refuse("tensor " + std::to_string(i) + " of the mini-batch is not a sequence with lengths",
           "in a loop of your own, the lengths are a tensor of the mini-batch like others");
  }
  return state_.rows[*at];
}

Tensor Shard::State::filled(const TensorSpec& spec,
                            const std::function<void(void* to)>& fill) const {
  if (transfers) return transfers->send(network.device(), spec, fill);
  const Tensor tensor(spec.shape, spec.dtype);
  fill(tensor.raw());
  return tensor;
}

Tensor Shard::State::on_host(const Tensor& tensor) const {
  for (size_t i = 0; program && !tensor.device().is_cpu() && i < rows.size(); ++i) {
    if (rows[i].id() != tensor.id()) continue;
    if (i < tensors() && lengths_at(i)) break;  // the mini-batch has its lengths
    const Tensor known = program->rows_here(i < tensors() ? i : lengths[i - tensors()], range);
    if (known.defined()) return known;
  }
  return tensor.to({});
}

// The lengths of the inputs that are sequences: those that the caller gives, or those of the
// shard's tensors.
std::vector<Tensor> Shard::State::lengths_of(const std::vector<Tensor>& inputs,
                                             const ShardForwardOptions& options) const {
  if (!options.lengths.empty() || lengths.empty()) return options.lengths;
  std::vector<Tensor> found;
  const std::vector<NetworkValue> values = network.inputs();
  for (size_t k = 0; k < std::min(values.size(), inputs.size()); ++k) {
    if (!values[k].sequence) continue;
    std::optional<size_t> at;
    for (size_t i = 0; i < tensors() && !at; ++i) {
      if (rows[i].id() == inputs[k].id()) at = lengths_at(i);
    }
    if (!at) {
      refuse("forward() cannot know the lengths of the input `" + values[k].name +
                 "`, which is not a tensor of the mini-batch as it is",
             "pass them: .lengths = {shard.lengths(0)}");
    }
    found.push_back(rows[*at]);
  }
  return found;
}

Tensor Shard::forward(const Tensor& input, const ShardForwardOptions& options) {
  return forward_all({input}, options).front();
}

namespace {

// Records the gradients with respect to the inputs on tapes that are to differentiate them again.
// Their derivatives reach the network's parameters themselves, not the tensor that stands for all.
void record_gradients(const Network& network, const NetworkFunction& function,
                      const RandomContext& step, const std::vector<Tensor>& tracked,
                      const std::vector<Tensor>& diffs, const std::vector<bool>& wanted,
                      const std::vector<Tensor>& rows, std::vector<Tensor>& results) {
  const auto inputs = static_cast<ptrdiff_t>(tracked.size()) - 1;
  NetworkFunction::Computed computed{.inputs = {tracked.begin(), tracked.begin() + inputs},
                                     .parameters = network.parameter_values(),
                                     .output_gradients = diffs,
                                     .needed = wanted,
                                     .step = step,
                                     .rows = rows};
  for (const auto& state : network.state()) computed.states.push_back(state.value);
  std::vector<Tensor> gradients(results.begin(), results.begin() + inputs);
  function.record(computed, gradients);
  std::copy(gradients.begin(), gradients.end(), results.begin());
}

// Adds the gradients of a run to those of earlier ones. A run leaves parameters alone on which its
// outputs do not depend, so branches of a network are not added.
void add_gradients(const PlanRun& run, const GradientLayout& layout, std::byte* sum,
                   std::vector<bool>& reached, Device device) {
  const std::vector<bool>& added = run.plan().reached_parameters();
  void* const stream = device.is_cpu() ? nullptr : eager_stream_of(device);
  for (size_t p = 0; p < added.size(); ++p) {
    if (!added[p]) continue;
    const GradientLayout::Entry& entry = layout.entries[p];
    const std::byte* const from = run.gradients() + entry.offset;
    std::byte* const to = sum + entry.offset;
    const size_t bytes = entry.spec.bytes();
    if (reached[p]) {
      float* const values = reinterpret_cast<float*>(to);
      kernels::functions_for(device).add(values, reinterpret_cast<const float*>(from), values,
                                         bytes / sizeof(float), stream);
    } else {
      eager_copy(device, to, from, bytes);
      reached[p] = true;
    }
  }
}

}  // namespace

std::vector<RecordedRun::RowsRead> Shard::State::read_rows(const std::vector<Carry>& carries,
                                                           int64_t n) {
  std::vector<RecordedRun::RowsRead> read;
  if (carries.empty()) return read;
  if (n != range.count) {
    refuse("the network carries states by row, but a shard of " + std::to_string(range.count) +
               " observations runs it on " + std::to_string(n),
           "run it on all rows of the shard, or with .training = false");
  }
  if (std::exchange(has_carried, true)) {
    refuse("a shard runs the network twice, and both runs carry the state by row `" +
               carries.front().name + "`",
           "run it once, or with .training = false");
  }
  const CarriedRows carried(network, carries, program->fresh_);
  for (size_t k = 0; k < carries.size(); ++k) {
    Tensor values = carried.read(k, range);
    if (transfers) {
      values = transfers->send(network.device(), values.spec(), [own = values](void* to) {
        std::memcpy(to, own.raw(), own.bytes());
      });
    }
    read.push_back({carries[k].input, values});
  }
  return read;
}

PlanRun& Shard::State::next_run(const FunctionProgram::ShardPlan& plan, bool lasting) {
  if (lasting && network.device().is_cpu() && !plan.lengths.empty()) {
    std::deque<RunsInTurn>& turns = worker->turns;
    if (in_turn == turns.size()) turns.emplace_back(network.packed(), network.state_pointers());
    RunsInTurn& turn = turns[in_turn++];
    turn.add(plan.plan);
    return turn.of(*plan.plan);
  }
  auto& runs = worker->runs[&plan];
  const size_t number = used[&plan]++;
  if (runs.size() == number) {
    const kernels::ThreadChoice settings(program->options_.choice);
    runs.push_back(
        std::make_unique<PlanRun>(plan.plan, network.packed(), network.state_pointers()));
  }
  return *runs[number];
}

std::vector<Tensor> Shard::forward_all(const std::vector<Tensor>& inputs,
                                       const ShardForwardOptions& options) {
  State& s = state_;
  Network& network = s.network;
  if (s.program == nullptr) {
    return network.forward_all(inputs, {.training = false,
                                        .record = false,
                                        .carry = false,
                                        .outputs = options.outputs,
                                        .lengths = s.lengths_of(inputs, options)});
  }
  ThreadTimer& charge = *s.charge;
  charge(&IterationAccounts::losses);
  const Device device = network.device();
  const int64_t n = network.check_inputs(inputs);
  const bool differentiable = Tape::any_tracks(inputs);
  const bool only_predicts = s.is_trial && s.program->has_statistics_;
  const bool training = options.training && !only_predicts;
  const bool carry = options.training && !s.is_trial && !network.row_states().empty();
  ForwardStatistics::Key key{n, training, carry, differentiable, {}, options.outputs, {}};
  for (const Tensor& input : inputs) key.inputs.push_back(input.dtype());
  const std::vector<Tensor> given = s.lengths_of(inputs, options);
  std::vector<Tensor> known;
  for (const Tensor& of : given) known.push_back(s.on_host(of));
  const std::vector<Tensor> lengths = network.sequence_lengths(inputs, given, known);
  key.steps = steps_of(inputs, !lengths.empty());
  const bool only_for_trial = only_predicts || (s.is_trial && !network.row_states().empty());
  using Use = FunctionProgram::Use;
  const FunctionProgram::ShardPlan& plan =
      s.program->plan(key, only_for_trial                 ? Use::trial
                           : s.program->is_branch(s, key) ? Use::bundles
                                                          : Use::shards);
  if (plan.refused) std::rethrow_exception(plan.refused);
  check_combined(plan.combined, known.empty() ? lengths : known, s.step.first_row);
  PlanRun* const run = &s.next_run(plan, !only_for_trial);
  charge(&IterationAccounts::plans);
  if (s.program->profile_ && !s.is_trial) ++s.worker->calls[&plan];
  std::vector<RecordedRun::RowsRead> rows = s.read_rows(plan.carries, n);
  for (size_t k = 0; k < lengths.size(); ++k) rows.push_back({plan.lengths[k], lengths[k]});
  RecordedRun recorded({.run = run,
                        .inputs = inputs,
                        .rows = rows,
                        .outputs = plan.outputs,
                        .step = s.step,
                        .begin =
                            [&plan, &charge] {
                              charge(&IterationAccounts::inputs);
                              return charge.watch(*plan.plan);
                            },
                        .zeros = false});
  recorded.forward();
  std::vector<Tensor> outputs = recorded.outputs();
  if (!plan.statistics.empty() || !plan.carries.empty()) {
    ForwardStatistics followed{key, {}, {}};
    const auto add = [&](std::vector<float>& to, int output, int64_t count) {
      const float* const from = run->output(output);
      if (s.transfers) {
        s.transfers->read(device, from, count);
        to.resize(to.size() + static_cast<size_t>(count));
      } else {
        to.insert(to.end(), from, from + count);
      }
    };
    for (const MovingStatistics& of : plan.statistics) {
      add(followed.values, of.mean_output, of.channels);
      add(followed.values, of.variance_output, of.channels);
    }
    for (size_t k = 0; k < plan.carries.size(); ++k) {
      add(followed.carried, plan.carries[k].output, rows[k].values.shape().elements());
    }
    s.summary->runs.push_back(std::move(followed));
  }

  charge(&IterationAccounts::results);
  std::vector<Tensor> tracked = inputs;
  tracked.push_back(s.parameters);
  Tape::record_everywhere(
      tracked, outputs,
      [run, device, key, &plan, &s, &charge, tracked, recorded = std::move(recorded)](
          const std::vector<Tensor>& output_gradients, const std::vector<bool>& wanted) mutable {
        charge(&IterationAccounts::losses);
        std::vector<Tensor> results = recorded.backward(output_gradients, wanted);
        const size_t of_parameters = tracked.size() - 1;
        if (wanted[of_parameters]) s.swept.emplace_back(key, &plan);
        if (wanted[of_parameters] && s.in_bundle) {
          s.program->keep_operands(s, key, *run);
          // Never read: the tape needs a gradient, not its values.
          if (s.swept.size() == 1) {
            results[of_parameters] =
                Tensor::view(s.parameters.raw(), s.parameters.spec(), nullptr, device);
          }
        } else if (wanted[of_parameters] && s.gradients == nullptr) {
          s.gradients = run->gradients();
          s.reached = plan.plan->reached_parameters();
          results[of_parameters] =
              Tensor::view(s.gradients, tracked.back().spec(), nullptr, device);
        } else if (wanted[of_parameters]) {
          add_gradients(*run, plan.plan->gradient_layout(), s.gradients, s.reached, device);
        }
        if (Tape::any_records()) {
          record_gradients(s.network, *plan.function, s.step, tracked, output_gradients, wanted,
                           recorded.rows(), results);
        }
        charge(&IterationAccounts::results);
        return results;
      },
      Tape::Outputs::linked);
  return outputs;
}

}  // namespace lockstep
