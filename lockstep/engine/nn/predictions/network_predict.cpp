// Predictions whose rows do not depend on other rows.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/nn/network_state.h"
#include "lockstep/engine/nn/recorded_run.h"
#include "lockstep/engine/nn/sequences.h"

namespace lockstep {

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

// Observations of one capacity of steps.
using Capacities = std::map<int64_t, std::vector<int64_t>>;

Capacities by_capacity(const Tensor& lengths) {
  Capacities found;
  for (int64_t i = 0; i < lengths.shape()[0]; ++i) {
    found[steps_capacity(lengths.data<int32_t>()[i])].push_back(i);
  }
  return found;
}

// Sequences on the host. They run with others of the same capacity, so that a plan depends on a
// sequence's own length alone.
class Groups {
 public:
  // Runs kPredictedTogether observations, of which the first ones are these rows.
  using Run =
      std::function<Tensor(const Tensor& x, const Tensor& lengths, std::span<const int64_t> rows)>;

  Groups(const Tensor& input, const Tensor& lengths)
      : input_(input.to({}).to_row_major()), lengths_(lengths.to({})) {}

  // Returns the results of all rows; `sequence`: they are sequences, with zeros after their ends.
  Tensor run(const Run& run, bool sequence, Device device) const {
    Tensor result;
    for (const auto& [capacity, all] : by_capacity(lengths_)) {
      for (size_t first = 0; first < all.size(); first += kPredictedTogether) {
        const size_t count = std::min<size_t>(kPredictedTogether, all.size() - first);
        const std::span<const int64_t> rows = std::span(all).subspan(first, count);
        const Tensor lengths = lengths_of(rows);
        const Tensor scores =
            run(steps_of_rows(rows, capacity).to(device), lengths.to(device), rows)
                .to({})
                .to_row_major();
        if (!result.defined()) result = results(scores.shape(), sequence);
        put(scores, rows, sequence ? capacity : 0, result);
      }
    }
    return result.to(device);
  }

 private:
  int64_t observations() const { return input_.shape()[0]; }
  int64_t length(int64_t row) const { return lengths_.data<int32_t>()[row]; }

  Tensor lengths_of(std::span<const int64_t> rows) const {
    std::vector<int32_t> own(kPredictedTogether, 0);
    for (size_t i = 0; i < rows.size(); ++i) own[i] = static_cast<int32_t>(length(rows[i]));
    return Tensor::from(std::span<const int32_t>(own), Shape{kPredictedTogether});
  }

  Tensor steps_of_rows(std::span<const int64_t> rows, int64_t capacity) const {
    const int64_t steps = input_.shape()[1];
    const size_t step_bytes = input_.bytes() / static_cast<size_t>(observations() * steps);
    Tensor some = Tensor::zeros(
        shape_of_dims({kPredictedTogether, capacity}, input_.shape().dims(), 2), input_.dtype());
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(
          static_cast<std::byte*>(some.raw()) + i * static_cast<size_t>(capacity) * step_bytes,
          static_cast<const std::byte*>(input_.raw()) +
              static_cast<size_t>(rows[i] * steps) * step_bytes,
          static_cast<size_t>(length(rows[i])) * step_bytes);
    }
    return some;
  }

  Tensor results(const Shape& scores, bool sequence) const {
    std::vector<int64_t> all = scores.dims();
    all[0] = observations();
    if (sequence) all[1] = input_.shape()[1];
    return Tensor::zeros(Shape(all), DType::f32);
  }

  // `capacity`: of the scores' steps; 0: they are not sequences.
  void put(const Tensor& scores, std::span<const int64_t> rows, int64_t capacity,
           const Tensor& result) const {
    const int64_t each = scores.shape().elements() / kPredictedTogether;
    const int64_t row_elements = result.shape().elements() / observations();
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t valid = capacity > 0 ? each / capacity * length(rows[i]) : each;
      std::copy_n(scores.data<float>() + static_cast<int64_t>(i) * each, valid,
                  result.data<float>() + rows[i] * row_elements);
    }
  }

  const Tensor input_, lengths_;
};

// All steps of an input that is a sequence.
Tensor whole_lengths(const Tensor& input) {
  const std::vector<int32_t> whole(static_cast<size_t>(input.shape()[0]),
                                   static_cast<int32_t>(input.shape()[1]));
  return Tensor::from(std::span(whole), Shape{input.shape()[0]});
}

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

}  // namespace

Tensor Network::predict(const Tensor& input, const Tensor& lengths) {
  const std::span<const Tensor> one(&input, 1);
  check_inputs(one);
  const std::vector<Tensor> known = sequence_lengths(one, {lengths});
  const auto run = [&](const Tensor& x, const Tensor& own, std::span<const int64_t>) {
    return forward({x}, {.record = false, .carry = false, .lengths = {own}});
  };
  return Groups(input, known.at(0)).run(run, outputs().at(0).sequence, device());
}

void Network::reset_state() { state_->pieces = {}; }

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
  const std::vector<Tensor> known = sequence_lengths(one, {lengths});
  PieceStates next = state_->pieces;
  if (next.rows != 0 && next.rows != n) {
    throw InvalidArgument("[network] predict_and_update() continues " + std::to_string(next.rows) +
                              " sequences, received pieces of " + std::to_string(n),
                          "reset_state() begins with others; a sequence without a step in this "
                          "piece has the length 0");
  }
  if (next.rows == 0) {
    const NetworkAnalysis analysis = state_->analyze(true);
    refuse_problems(analysis.problems, "it cannot run piece by piece; ");
    next = {n, analysis.outputs.at(analysis.output_layers.at(0)).sequence,
            state_->made_states(analysis, n)};
  }
  next.states = copies_of(next.states);  // an error changes nothing
  const auto run = [&](const Tensor& x, const Tensor& own, std::span<const int64_t> rows) {
    return run_pieces(x, own, rows, next.states);
  };
  const Tensor result = Groups(input, known.at(0)).run(run, next.sequence, device());
  if (limit == ForwardLimit::none) state_->pieces = std::move(next);
  return result;
}

Tensor Network::run_pieces(const Tensor& input, const Tensor& lengths,
                           std::span<const int64_t> rows, const std::vector<RowState>& states) {
  const std::shared_ptr<NetworkPlan> mine = plan_for(
      kPredictedTogether,
      {.inputs = {input.dtype()}, .carry = true, .steps = {input.shape()[1]}, .in_pieces = true},
      DType::f32, false);
  const std::shared_ptr<NetworkRun> lent = lend_run(mine, packed(), state_->states);
  const ArithmeticMode mode;
  packed().refresh(device().is_cpu() ? packed().digests() : std::vector<Digest>());
  std::vector<RecordedRun::RowsRead> read{{mine->lengths.at(0), lengths}};
  const auto all_of = [&](const Carry& carry) -> const RowState& {
    return *std::ranges::find(states, carry.name, &RowState::name);
  };
  const auto shape_of_group = [&](const Carry& carry) {
    return all_of(carry).value.shape().with_batch(kPredictedTogether);
  };
  for (const Carry& carry : mine->carries) {
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
  for (const Carry& carry : mine->carries) {
    const Tensor group = output_of(*lent->run, carry.output, shape_of_group(carry)).to({});
    copy_state_rows(all_of(carry).value, group, rows, true);
  }
  return run.outputs().at(0);
}

Tensor Network::predict(const Tensor& input) {
  const int64_t n = check_inputs(std::span(&input, 1));
  if (inputs().at(0).sequence) return predict(input, whole_lengths(input));
  const bool on_cpu = device().is_cpu();
  const int64_t rows = on_cpu ? kPredictedTogether : kPredictedTogetherOnGpu;
  const std::shared_ptr<NetworkPlan> mine =
      plan_for(rows, {.inputs = {input.dtype()}}, DType::f32, false);
  const std::shared_ptr<NetworkRun> run = lend_run(mine, packed(), state_->states);
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
