// Sequences that are predicted segment by segment.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/network_state.h"
#include "lockstep/engine/nn/predictions/sequence_groups.h"
#include "lockstep/engine/nn/runner/recorded_run.h"

namespace lockstep {
namespace {

// Kept steps have room for at least this many, and for twice as many when that is full.
constexpr int64_t kLeastCapacity = 64;

// Copies rows between the states of all sequences and those of a group.
void copy_state_rows(const Tensor& all, const Tensor& group, std::span<const int64_t> rows,
                     bool to_all) {
  const int64_t each = all.shape().elements() / all.shape()[0];
  for (size_t i = 0; i < rows.size(); ++i) {
    float* const at = all.data<float>() + rows[i] * each;
    float* const in_group = group.data<float>() + static_cast<int64_t>(i) * each;
    std::copy_n(to_all ? in_group : at, each, to_all ? at : in_group);
  }
}

// Fills an input of a plan, n x capacity x ..., with the earlier steps of a group.
void give_steps(PlanRun& run, int input, const KeptSteps& kept, const SegmentStates& states,
                std::span<const int64_t> rows) {
  const int64_t step = kept.step.elements(), each = states.capacity * step;
  const bool on_cpu = run.plan().device().is_cpu();
  const size_t bytes = run.input_bytes(input);
  std::vector<float> host;
  if (!on_cpu) host.resize(bytes / sizeof(float));
  float* const to = on_cpu ? static_cast<float*>(run.input(input)) : host.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t earlier = states.steps[static_cast<size_t>(rows[i])];
    std::copy_n(kept.values.data<float>() + rows[i] * each, earlier * step,
                to + static_cast<int64_t>(i) * each);
  }
  if (!on_cpu) run.set_input(input, host.data(), bytes);
}

// Appends the steps of a group's segment, n x steps x ..., to those that are kept.
void append_steps(const Tensor& segment, const Tensor& lengths, const KeptSteps& kept,
                  const SegmentStates& states, std::span<const int64_t> rows) {
  const int64_t step = kept.step.elements(), each = segment.shape()[1] * step;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t first = rows[i] * states.capacity + states.steps[static_cast<size_t>(rows[i])];
    std::copy_n(segment.data<float>() + static_cast<int64_t>(i) * each,
                lengths.data<int32_t>()[i] * step, kept.values.data<float>() + first * step);
  }
}

}  // namespace

void SegmentStates::make_room(int64_t longest) {
  longest = std::max<int64_t>(longest, 1);
  if (kept.empty() || longest <= capacity) return;
  const auto doubled = std::bit_ceil(static_cast<uint64_t>(std::max(longest, kLeastCapacity)));
  const int64_t larger = std::min(static_cast<int64_t>(doubled), most_steps);
  for (KeptSteps& k : kept) {
    const int64_t step = k.step.elements();
    const Tensor values(shape_of_dims({rows, larger}, k.step.dims(), 0), DType::f32);
    for (int64_t row = 0; row < rows && k.values.defined(); ++row) {
      std::copy_n(k.values.data<float>() + row * capacity * step,
                  steps[static_cast<size_t>(row)] * step,
                  values.data<float>() + row * larger * step);
    }
    k.values = values;
  }
  capacity = larger;
}

SegmentStates SegmentStates::clone() const {
  SegmentStates copy = *this;
  copy.states = copies_of(states);
  for (KeptSteps& k : copy.kept) {
    if (k.values.defined()) k.values = k.values.clone();
  }
  return copy;
}

SegmentStates Network::State::begun_segments(int64_t rows) const {
  const NetworkAnalysis& analysis = analyze(true);
  refuse_problems(analysis.problems, "it cannot run segment by segment; ");
  SegmentStates begun;
  begun.rows = rows;
  begun.sequence = analysis.outputs.at(analysis.output_layers.at(0)).sequence;
  begun.states = made_states(analysis, rows);
  begun.steps.assign(static_cast<size_t>(rows), 0);
  for (const size_t i : analysis.order) {
    for (const StateSpec& spec : analysis.steps[i]) {
      begun.kept.push_back({layers[i].name + "." + spec.name, spec.shape, {}});
    }
    if (analysis.most_steps[i] >= begun.most_steps) continue;
    begun.most_steps = analysis.most_steps[i];
    begun.limited_by = layers[i].name;
  }
  return begun;
}

void Network::reset_state() { state_->segments = {}; }

OwnSegments::OwnSegments(Network& network)
    : network_(network),
      before_(std::make_unique<SegmentStates>(std::exchange(network.state_->segments, {}))) {}
OwnSegments::~OwnSegments() { network_.state_->segments = std::move(*before_); }

int64_t Network::most_steps_in_segments() const {
  const NetworkAnalysis& analysis = state_->analyze(true);
  if (!analysis.problems.empty()) return 0;
  return std::ranges::min(analysis.most_steps);
}

Tensor Network::predict_and_update(const Tensor& input) {
  check_inputs(std::span(&input, 1));
  if (!inputs().at(0).sequence) {
    throw InvalidArgument("[network] predict_and_update() takes sequences, but `" +
                              input_names().at(0) + "` has observations of one size",
                          "sequence_input without a length, or token_input, makes sequences");
  }
  return predict_and_update(input, whole_lengths(input));
}

Tensor Network::predict_and_update(const Tensor& input, const Tensor& lengths) {
  const ForwardLimit limit = LimitedForward::now();
  if (limit == ForwardLimit::carry_refused) {
    throw InvalidArgument(
        "[network] predict_and_update() cannot keep states in a loss of shards, because shards are "
        "computed at once");
  }
  const std::span<const Tensor> one(&input, 1);
  const int64_t n = check_inputs(one);
  const Tensor known = sequence_lengths(one, {lengths}).at(0);
  SegmentStates next = state_->segments;
  if (next.rows != 0 && next.rows != n) {
    throw InvalidArgument("[network] predict_and_update() continues " +
                              counted(next.rows, "sequence") + ", received segments of " +
                              std::to_string(n),
                          "reset_state() begins with others; a sequence without a step in this "
                          "segment has the length 0");
  }
  if (next.rows == 0) next = state_->begun_segments(n);
  // An error changes nothing. Kept steps count only after the run.
  next.states = copies_of(next.states);
  std::vector<int64_t> after = next.steps;
  const Tensor host = known.to({});
  for (size_t row = 0; row < after.size(); ++row) {
    after[row] += host.data<int32_t>()[row];
    if (after[row] <= next.most_steps) continue;
    throw InvalidArgument("[network] with this segment sequence " + std::to_string(row + 1) +
                              " has " + counted(after[row], "step") + ", but the layer `" +
                              next.limited_by + "` has room for " + std::to_string(next.most_steps),
                          "reset_state() begins with other sequences");
  }
  next.make_room(std::ranges::max(after));
  const auto run = [&](const Tensor& x, const Tensor& own, std::span<const int64_t> rows) {
    return run_segments(x, own, rows, next);
  };
  const Tensor result = SequenceGroups(input, known, n == 1 ? 1 : kPredictedTogether)
                            .run(run, next.sequence, device());
  next.steps = std::move(after);
  if (limit == ForwardLimit::none) state_->segments = std::move(next);
  return result;
}

Tensor Network::run_segments(const Tensor& input, const Tensor& lengths,
                             std::span<const int64_t> rows, const SegmentStates& states) {
  const int64_t together = input.shape()[0];
  const std::shared_ptr<NetworkPlan> mine = plan_for(together,
                                                     {.inputs = {input.dtype()},
                                                      .carry = true,
                                                      .steps = {input.shape()[1]},
                                                      .in_segments = true,
                                                      .capacity = states.capacity},
                                                     DType::f32, false);
  const std::shared_ptr<NetworkRun> lent = lend_run(mine, packed(), state_->states);
  const ArithmeticMode mode;
  refresh_packed();
  std::vector<int32_t> earlier(static_cast<size_t>(together), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    earlier[i] = static_cast<int32_t>(states.steps[static_cast<size_t>(rows[i])]);
  }
  std::vector<RecordedRun::RowsRead> read{
      {mine->lengths.at(0), lengths},
      {mine->earlier, Tensor::from(std::span<const int32_t>(earlier), Shape{together})}};
  const auto all_of = [&](const Carry& carry) -> const RowState& {
    return *std::ranges::find(states.states, carry.name, &RowState::name);
  };
  const auto kept_of = [&](const Carry& carry) -> const KeptSteps& {
    return *std::ranges::find(states.kept, carry.name, &KeptSteps::name);
  };
  const auto shape_of_group = [&](const Carry& carry) {
    return all_of(carry).value.shape().with_batch(together);
  };
  for (const Carry& carry : mine->carries) {
    if (carry.appends) {
      give_steps(*lent->run, carry.input, kept_of(carry), states, rows);
      continue;
    }
    const Tensor group = Tensor::full(shape_of_group(carry), all_of(carry).initial);
    copy_state_rows(all_of(carry).value, group, rows, false);
    read.push_back({carry.input, group});
  }
  RecordedRun run({.run = lent->run.get(),
                   .inputs = {input},
                   .rows = std::move(read),
                   .outputs = mine->outputs,
                   .step = {}});
  run.forward();
  const Tensor own = lengths.to({});
  for (const Carry& carry : mine->carries) {
    if (carry.appends) {
      const Shape shape =
          shape_of_dims({together, input.shape()[1]}, kept_of(carry).step.dims(), 0);
      append_steps(output_of(*lent->run, carry.output, shape).to({}), own, kept_of(carry), states,
                   rows);
      continue;
    }
    const Tensor group = output_of(*lent->run, carry.output, shape_of_group(carry)).to({});
    copy_state_rows(all_of(carry).value, group, rows, true);
  }
  return run.outputs().at(0);
}

}  // namespace lockstep
