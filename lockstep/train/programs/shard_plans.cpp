#include "lockstep/train/programs/shard_plans.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layers/normalized_values.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/plan/derivatives.h"
#include "lockstep/engine/plan/kept_part.h"
#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {

namespace {

// "1x28x28 (u8)", "steps x 12 (f32)"
std::string text_of(const ShardPlans::Array& array, bool sequence) {
  const NetworkValue value{.name = {}, .shape = array.shape, .sequence = sequence};
  return value.to_string() + " (" + std::string(name_of(array.type)) + ")";
}

// Targets by step have the lengths of their inputs.
void check_lengths(const MiniBatch& batch, const RowsOf& inputs, const RowsOf& targets,
                   const std::string& name) {
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (inputs.length(i) == targets.length(i)) continue;
    throw InvalidArgument("[training] observation " +
                          std::to_string(batch.observations[static_cast<size_t>(i)]) + " has " +
                          counted(inputs.length(i), "step", "steps") + ", but " +
                          std::to_string(targets.length(i)) + " " + name);
  }
}

}  // namespace

std::shared_ptr<const Plan> ShardPlans::plan(int64_t rows) {
  ShardShape shape{rows};
  const std::vector<NetworkValue> inputs = network_.inputs();
  if (std::ranges::any_of(inputs, &NetworkValue::sequence)) {
    for (const NetworkValue& input : inputs) {
      shape.steps.push_back(input.sequence ? kStepsForQuestions : 0);
    }
  }
  return plan(shape);
}

std::shared_ptr<const Plan> ShardPlans::plan(const ShardShape& shape) {
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return found->second;
  auto made = compiled(shape, false);
  if (layout_.entries.empty()) {
    layout_ = made->gradient_layout();
    const std::vector<bool>& reached = made->reached_parameters();
    together_ = made->shards_together() && statistics_.empty() && !sequences() &&
                std::count(reached.begin(), reached.end(), false) == 0;
    const auto left_out = std::ranges::count(left_out_, true);
    if (!together_ && left_out > 0 && left_out < std::ssize(left_out_)) {
      arrange(layout_, left_out_);
      made = compiled(shape, false);  // again: whether shards are together is known only now
    }
  }
  if (!first_) first_ = made;
  return plans_.emplace(shape, std::move(made)).first->second;
}

std::shared_ptr<const Plan> ShardPlans::plan_of_bundle(int64_t rows) {
  std::shared_ptr<const Plan>& plan = plans_of_bundles_[rows];
  if (!plan) plan = compiled({rows}, true);
  return plan;
}

void ShardPlans::divide(std::vector<bool> frozen) {
  if (frozen == frozen_) return;
  frozen_ = std::move(frozen);
  plans_.clear();
  first_.reset();
}

std::shared_ptr<const Plan> ShardPlans::compiled(const ShardShape& shape, bool bundle) {
  const int64_t size = shape.rows;
  const std::vector<DType> types =
      types_.empty() ? std::vector<DType>(network_.input_shapes().size(), DType::u8) : types_;
  LoweredNetwork lowered = network_.lower(
      size, {.training = true, .inputs = types, .carry = true, .steps = shape.steps});
  if (lowered.outputs.size() != 1) {
    throw InvalidArgument("[training] training needs a network with one output, but this one has " +
                              std::to_string(lowered.outputs.size()),
                          "train other networks with a loss of the user or by a custom loop");
  }
  const int scores = lowered.outputs[0];
  LossValues loss{};
  if (mixed_) {
    const MixedLossValues both = add_mixed_loss(lowered.graph, loss_, scores);
    loss = {both.target, both.loss};
  } else {
    loss = add_loss(lowered, loss_);
  }
  lowered.graph.mark_output(scores);
  PlanOptions options{.gradients = true,
                      .differentiated = {lowered.graph.mark_output(loss.loss)},
                      .precision = precision_,
                      .sums_over_shards = bundle};
  if (!layout_.entries.empty()) options.gradient_layout = &layout_;
  statistics_ = lowered.mark_statistics();
  carries_ = lowered.mark_carries();
  combined_ = lowered.combined;
  most_rows_ = std::max(most_rows_, bundle ? 0 : size);
  describe(lowered, loss.target, types);
  Unchanging unchanging;
  if (!frozen_.empty() && !bundle && !sequences() && carries_.empty()) {
    unchanging = {.rows = size,
                  .parameters = frozen_,
                  .states = std::vector<bool>(network_.state().size(), true),
                  .inputs = std::vector<bool>(inputs_, true),
                  .over_rows = {}};
    for (const MovingStatistics& s : statistics_) {
      for (const int state : {s.mean_state, s.variance_state}) {
        unchanging.states[static_cast<size_t>(state)] = false;
      }
      unchanging.over_rows.insert(unchanging.over_rows.end(), {s.mean_output, s.variance_output});
    }
    options.unchanging = &unchanging;
  }
  const Shape& output = lowered.graph.shape(scores);
  outputs_ = output.elements() / (output_sequence() >= 0 ? size * output[1] : size);
  pixels_ = labeled_ && arrays_.back().sequence < 0 && arrays_.back().shape.rank() > 0
                ? arrays_.back().shape.elements()
                : 0;
  return std::make_shared<const Plan>(lowered.graph, network_.parameter_shapes(), options, device_);
}

void ShardPlans::describe(const LoweredNetwork& lowered, int target,
                          const std::vector<DType>& types) {
  using Kind = Array::Kind;
  arrays_.clear();
  const std::vector<NetworkValue> inputs = network_.inputs();
  inputs_ = inputs.size();
  for (size_t k = 0; k < inputs_; ++k) {
    const NetworkValue& input = inputs[k];
    const DType type = input.sequence ? input.type : types.at(k);
    arrays_.push_back(
        {input.name, input.shape, type, Kind::values, input.sequence ? static_cast<int>(k) : -1});
  }
  for (size_t k = 0; k < inputs_; ++k) {
    if (!inputs[k].sequence) continue;
    arrays_.push_back({inputs[k].name, {}, DType::i32, Kind::lengths, static_cast<int>(k)});
  }
  for (const Carry& carry : carries_) {
    const Shape& shape = lowered.graph.shape(lowered.graph.input(carry.input));
    arrays_.push_back({carry.name, shape.without_batch(), DType::f32, Kind::carried});
  }
  if (mixed_) {
    for (const char* name : {"factors", "factors of other labels"}) {
      arrays_.push_back({name, {}, DType::f32, Kind::factors});
    }
    arrays_.push_back({"other_labels", {}, DType::i32});
  }
  labeled_ = takes_labels(loss_);
  const int lengths = lowered.output_lengths[0];
  int sequence = -1;
  if (lengths >= 0) {
    const auto found = std::ranges::find(lowered.input_lengths, lengths);
    if (found == lowered.input_lengths.end()) {
      throw Unsupported(
          "[training] the steps of the network's output are not those of an input, so no targets "
          "fit it",
          "train it by a loss of your own, or end it in a layer that gives one result for a "
          "sequence");
    }
    sequence = static_cast<int>(found - lowered.input_lengths.begin());
  }
  const Shape& shape = lowered.graph.shape(target);
  arrays_.push_back({labeled_ ? "labels" : "targets",
                     shape_of_dims({}, shape.dims(), sequence < 0 ? 1 : 2),
                     labeled_ ? DType::i32 : DType::f32, Kind::values, sequence});
}

int64_t ShardPlans::statistic_elements() const {
  int64_t count = 0;
  for (const MovingStatistics& s : statistics_) count += 2 * s.channels;
  return count;
}

int64_t ShardPlans::carried_elements() const {
  int64_t count = 0;
  for (size_t k = 0; k < carries_.size(); ++k) {
    count += arrays_[first_carry() + k].shape.elements();
  }
  return count;
}

const RowArray* array_after(const MiniBatch& batch, size_t inputs, std::string_view name) {
  for (size_t i = inputs; i < batch.arrays.size(); ++i) {
    if (batch.arrays[i].name == name) return &batch.arrays[i];
  }
  return nullptr;
}

std::vector<RowsOf> batch_arrays(const MiniBatch& batch, const ShardPlans& plans) {
  std::vector<RowsOf> found(plans.arrays().size());
  for (size_t k = 0; k < found.size(); ++k) {
    const ShardPlans::Array& wanted = plans.arrays()[k];
    const bool target = k >= plans.first_factor();
    if (wanted.kind == ShardPlans::Array::Kind::carried ||
        wanted.kind == ShardPlans::Array::Kind::factors) {
      continue;
    }
    if (wanted.kind == ShardPlans::Array::Kind::lengths) {
      found[k] = found[static_cast<size_t>(wanted.sequence)];
      found[k].lengths = true;
      continue;
    }
    const RowArray* const array = target ? array_after(batch, plans.inputs(), wanted.name)
                                  : k < batch.arrays.size() ? &batch.arrays[k]
                                                            : nullptr;
    const std::string what = target ? wanted.name : "input `" + wanted.name + "`";
    if (array == nullptr) {
      throw InvalidArgument("[training] the mini-batch has " +
                            counted(static_cast<int64_t>(batch.arrays.size()), "array", "arrays") +
                            ", and none for the network's " + what);
    }
    // Targets may have another shape with as many elements.
    const bool sequence = wanted.sequence >= 0;
    if (array->ragged() != sequence || array->type != wanted.type ||
        array->row_bytes() != wanted.bytes() || array->rows != batch.size()) {
      throw InvalidArgument(
          "[training] the network's " + what + " needs " + counted(batch.size(), "row", "rows") +
          " of " + text_of(wanted, sequence) + ", but `" + array->name +
          "` of the mini-batch has " + std::to_string(array->rows) + " of " +
          text_of({.name = {}, .shape = array->shape, .type = array->type}, array->ragged()));
    }
    found[k] = {array->bytes.data(), wanted.bytes(), sequence ? array->offsets.data() : nullptr};
    if (sequence && target) {
      check_lengths(batch, found[static_cast<size_t>(wanted.sequence)], found[k], wanted.name);
    }
  }
  for (const CombinedSequences& pair : plans.combined()) {
    const RowsOf &first = found[pair.inputs[0]], &second = found[pair.inputs[1]];
    for (int64_t i = 0; i < batch.size(); ++i) {
      const int64_t a = first.length(i), b = second.length(i);
      if (a == b) continue;
      const int64_t observation = batch.observations[static_cast<size_t>(i)];
      pair.refuse(a, b, "observation " + std::to_string(observation + 1));
    }
  }
  return found;
}

int64_t RowsOf::longest(const IndexRange& rows) const {
  int64_t most = 0;
  for (int64_t i = rows.first; i < rows.end(); ++i) most = std::max(most, length(i));
  return most;
}

void RowsOf::copy(const IndexRange& rows, int64_t steps, void* to) const {
  auto* next = static_cast<std::byte*>(to);
  if (offsets == nullptr) {
    std::memcpy(next, at(rows.first), static_cast<size_t>(rows.count) * row_bytes);
    return;
  }
  for (int64_t i = rows.first; i < rows.end(); ++i) {
    if (lengths) {
      const auto own = static_cast<int32_t>(length(i));
      std::memcpy(next, &own, sizeof own);
      next += sizeof own;
      continue;
    }
    const size_t valid = static_cast<size_t>(length(i)) * row_bytes;
    const size_t room = static_cast<size_t>(steps) * row_bytes;
    if (valid > 0) std::memcpy(next, at(offsets[i]), valid);
    std::memset(next + valid, 0, room - valid);
    next += room;
  }
}

ShardShape shard_shape(const ShardPlans& plans, const std::vector<RowsOf>& arrays,
                       const IndexRange& rows) {
  ShardShape shape{rows.count};
  if (!plans.sequences()) return shape;
  for (size_t k = 0; k < plans.inputs(); ++k) {
    const bool sequence = plans.arrays()[k].sequence >= 0;
    shape.steps.push_back(sequence ? steps_capacity(arrays[k].longest(rows)) : 0);
  }
  return shape;
}

CarriedRows::CarriedRows(const Network& network, const std::vector<Carry>& carries, bool fresh)
    : fresh_(fresh) {
  for (const Carry& carry : carries) {
    const auto found = std::ranges::find(network.row_states(), carry.name, &RowState::name);
    if (found == network.row_states().end()) {
      throw InvalidArgument("[training] the network carries the state by row `" + carry.name +
                                "`, which is not made here",
                            "call make_row_states() in all members of a group");
    }
    const Tensor& value = found->value;
    states_.push_back({value, {}, found->initial, value.shape().elements() / network.made_rows()});
  }
}

RowsOf CarriedRows::read(size_t k) {
  State& state = states_[k];
  if (fresh_ && !state.initial.defined()) {
    state.initial = Tensor::full(state.value.shape(), state.first);
  }
  const Tensor& from = fresh_ ? state.initial : state.value;
  return {static_cast<const std::byte*>(from.raw()),
          static_cast<size_t>(state.row) * sizeof(float)};
}

Tensor CarriedRows::read(size_t k, const IndexRange& rows) const {
  const State& state = states_[k];
  const Shape shape = state.value.shape().with_batch(rows.count);
  if (fresh_) return Tensor::full(shape, state.first);
  const Tensor values(shape, DType::f32);
  std::copy_n(state.value.data<float>() + rows.first * state.row, rows.count * state.row,
              values.data<float>());
  return values;
}

void CarriedRows::take(const IndexRange& rows, const float* left) const {
  for (const State& state : states_) {
    std::copy_n(left, rows.count * state.row, state.value.data<float>() + rows.first * state.row);
    left += rows.count * state.row;
  }
}

int64_t CarriedRows::elements(int64_t rows) const {
  int64_t count = 0;
  for (const State& state : states_) count += rows * state.row;
  return count;
}

int64_t count_correct(const float* scores, const int32_t* labels, int64_t rows, int64_t classes) {
  int64_t correct = 0;
  for (int64_t n = 0; n < rows; ++n) {
    const std::span row(scores + n * classes, static_cast<size_t>(classes));
    correct += predicted_class(row) == labels[n];
  }
  return correct;
}

PixelCounts count_pixels(const float* scores, const int32_t* labels, int64_t rows, int64_t classes,
                         int64_t pixels) {
  PixelCounts counts;
  std::vector<int32_t> predicted(static_cast<size_t>(pixels));
  for (int64_t i = 0; i < rows; ++i, scores += classes * pixels, labels += pixels) {
    predicted_classes(scores, classes, predicted);
    for (int64_t p = 0; p < pixels; ++p) {
      counts.labels += labels[p] != kIgnoredLabel;
      counts.correct += labels[p] == predicted[static_cast<size_t>(p)];
    }
  }
  return counts;
}

namespace {

// Combines the values of all shards by the rule of one state. Changes `values`.
double combined(StateRule rule, std::vector<double>& values, const std::vector<double>& shares) {
  if (rule == StateRule::maximum)
    return std::accumulate(values.begin() + 1, values.end(), values.front(), larger);
  if (rule == StateRule::mean) {
    for (size_t j = 0; j < values.size(); ++j) values[j] *= shares[j];
  }
  return tree_sum(values);
}

// The share of each shard: of observations, or of what its statistics count. All are 0 if they
// count nothing.
std::vector<double> shares_of(const MovingStatistics& s, size_t at,
                              const std::vector<IndexRange>& shards,
                              const std::vector<const float*>& shard_statistics) {
  std::vector<double> counts;
  for (size_t j = 0; j < shards.size(); ++j) {
    if (!s.counted) {
      counts.push_back(static_cast<double>(shards[j].count));
      continue;
    }
    counts.push_back(
        static_cast<double>(shard_statistics[j][at + static_cast<size_t>(s.elements())]));
    const std::string first = std::to_string(shards[j].first);
    require_several_values(s, counts.back(), "[training] ",
                           shards[j].count == 1
                               ? "observation " + first + " of its mini-batch, a shard, has"
                               : "observations " + first + " to " +
                                     std::to_string(shards[j].end() - 1) +
                                     " of the mini-batch, a shard, have");
  }
  double all = 0;
  for (const double count : counts) all += count;  // whole numbers
  for (double& count : counts) count /= std::max(all, 1.0);
  return counts;
}

}  // namespace

void check_statistics(const std::vector<MovingStatistics>& statistics,
                      const std::vector<IndexRange>& shards,
                      const std::vector<const float*>& shard_statistics) {
  size_t at = 0;
  for (const MovingStatistics& s : statistics) {
    if (s.counted) shares_of(s, at, shards, shard_statistics);
    at += 2 * static_cast<size_t>(s.channels);
  }
}

void follow_statistics(const std::vector<MovingStatistics>& statistics,
                       const std::vector<IndexRange>& shards,
                       const std::vector<const float*>& shard_statistics,
                       const std::function<float*(int k)>& state) {
  check_statistics(statistics, shards, shard_statistics);
  std::vector<double> terms(shards.size());
  size_t at = 0;
  std::vector<double> mean, variance;
  for (const MovingStatistics& s : statistics) {
    const std::vector<double> shares = shares_of(s, at, shards, shard_statistics);
    const int64_t count = s.elements();
    const auto channels = static_cast<size_t>(count), stored = static_cast<size_t>(s.channels);
    const size_t begin = at;
    at += 2 * stored;
    if (s.counted && std::ranges::all_of(shares, [](double share) { return share == 0; })) continue;
    const auto value = [&](size_t j, size_t c) {
      return static_cast<double>(shard_statistics[j][begin + c]);
    };
    if (s.rule != StateRule::mean_and_variance) {
      mean.resize(channels);
      for (size_t c = 0; c < channels; ++c) {
        for (size_t j = 0; j < shards.size(); ++j) terms[j] = value(j, c);
        mean[c] = combined(s.rule, terms, shares);
      }
      update_state(s.rule, state(s.mean_state), mean.data(), count, s.momentum);
      continue;
    }
    mean.resize(channels);
    variance.resize(channels);
    for (size_t c = 0; c < channels; ++c) {
      for (size_t j = 0; j < shards.size(); ++j) terms[j] = shares[j] * value(j, c);
      mean[c] = tree_sum(terms);
      for (size_t j = 0; j < shards.size(); ++j) {
        const double distance = value(j, c) - mean[c];
        terms[j] = shares[j] * (value(j, stored + c) + distance * distance);
      }
      variance[c] = tree_sum(terms);
    }
    update_moving(state(s.mean_state), mean.data(), count, s.momentum);
    update_moving(state(s.variance_state), variance.data(), count, s.momentum);
  }
}

}  // namespace lockstep
