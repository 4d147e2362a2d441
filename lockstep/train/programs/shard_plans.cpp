#include "lockstep/train/programs/shard_plans.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/parallel/reduce/tree.h"

namespace lockstep {

std::shared_ptr<const Plan> ShardPlans::plan(int64_t size) {
  const auto found = plans_.find(size);
  if (found != plans_.end()) return found->second;
  auto made = compiled(size, false);
  if (layout_.entries.empty()) {
    layout_ = made->gradient_layout();
    together_ = made->shards_together() && statistics_.empty();
  }
  return plans_.emplace(size, std::move(made)).first->second;
}

std::shared_ptr<const Plan> ShardPlans::plan_of_bundle(int64_t rows) {
  std::shared_ptr<const Plan>& plan = plans_of_bundles_[rows];
  if (!plan) plan = compiled(rows, true);
  return plan;
}

std::shared_ptr<const Plan> ShardPlans::compiled(int64_t size, bool bundle) {
  const std::vector<DType> types =
      types_.empty() ? std::vector<DType>(network_.input_shapes().size(), DType::u8) : types_;
  LoweredNetwork lowered = network_.lower(size, {.training = true, .inputs = types});
  if (lowered.outputs.size() != 1) {
    throw InvalidArgument("[training] training needs a network with one output, but this one has " +
                              std::to_string(lowered.outputs.size()),
                          "train other networks with a loss of the user or by a custom loop");
  }
  const int scores = lowered.outputs[0];
  const LossValues loss = add_loss(lowered.graph, network_.loss(), scores);
  lowered.graph.mark_output(scores);
  PlanOptions options;
  options.gradients = true;
  options.precision = precision_;
  options.differentiated = {lowered.graph.mark_output(loss.loss)};
  options.sums_over_shards = bundle;
  if (!layout_.entries.empty()) options.gradient_layout = &layout_;
  statistics_ = lowered.mark_statistics();
  inputs_.clear();
  for (size_t k = 0; k < lowered.inputs.size(); ++k) {
    inputs_.push_back({lowered.graph.shape(lowered.inputs[k]).without_batch(), types.at(k)});
  }
  labeled_ = takes_labels(network_.loss());
  outputs_ = lowered.graph.shape(scores).elements() / size;
  return std::make_shared<const Plan>(lowered.graph, network_.parameter_shapes(), options, device_);
}

int64_t ShardPlans::statistic_elements() const {
  int64_t count = 0;
  for (const MovingStatistics& s : statistics_) count += 2 * s.channels;
  return count;
}

void check_batch(const MiniBatch& batch, const ShardPlans& plans) {
  if (batch.inputs.size() != plans.inputs().size()) {
    throw InvalidArgument("[training] the network has " + std::to_string(plans.inputs().size()) +
                          " inputs, but the mini-batch has " + std::to_string(batch.inputs.size()));
  }
  for (size_t k = 0; k < batch.inputs.size(); ++k) {
    const size_t bytes = plans.inputs()[k].bytes(), given = batch.inputs[k].bytes().size();
    if (given == batch.labels.size() * bytes) continue;
    throw InvalidArgument("[training] the network needs " + std::to_string(bytes) +
                          " bytes for an observation, but the mini-batch has " +
                          std::to_string(given) + " for " + std::to_string(batch.labels.size()) +
                          " observations");
  }
  const size_t wanted = batch.labels.size() * static_cast<size_t>(plans.outputs());
  if (!plans.labeled() && batch.targets.elements() != wanted) {
    throw InvalidArgument("[training] the network's output has " + std::to_string(plans.outputs()) +
                          " elements for an observation, but the mini-batch's targets have " +
                          std::to_string(batch.targets.elements() / batch.labels.size()));
  }
}

int64_t count_correct(const float* scores, const int32_t* labels, int64_t rows, int64_t classes) {
  int64_t correct = 0;
  for (int64_t n = 0; n < rows; ++n) {
    const std::span row(scores + n * classes, static_cast<size_t>(classes));
    correct += predicted_class(row) == labels[n];
  }
  return correct;
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

}  // namespace

void follow_statistics(const std::vector<MovingStatistics>& statistics,
                       const std::vector<IndexRange>& shards,
                       const std::vector<const float*>& shard_statistics,
                       const std::function<float*(int k)>& state) {
  int64_t rows = 0;
  for (const auto& s : shards) rows += s.count;
  std::vector<double> shares, terms(shards.size());
  for (const auto& s : shards) {
    shares.push_back(static_cast<double>(s.count) / static_cast<double>(rows));
  }
  size_t at = 0;
  std::vector<double> mean, variance;
  for (const MovingStatistics& s : statistics) {
    const int64_t count = s.channels;
    const auto channels = static_cast<size_t>(count);
    if (s.rule != StateRule::mean_and_variance) {
      mean.resize(channels);
      for (size_t c = 0; c < channels; ++c) {
        for (size_t j = 0; j < shards.size(); ++j) {
          terms[j] = static_cast<double>(shard_statistics[j][at + c]);
        }
        mean[c] = combined(s.rule, terms, shares);
      }
      at += 2 * channels;
      update_state(s.rule, state(s.mean_state), mean.data(), count, s.momentum);
      continue;
    }
    mean.resize(channels);
    variance.resize(channels);
    for (size_t c = 0; c < channels; ++c) {
      for (size_t j = 0; j < shards.size(); ++j) {
        terms[j] = shares[j] * static_cast<double>(shard_statistics[j][at + c]);
      }
      mean[c] = tree_sum(terms);
      for (size_t j = 0; j < shards.size(); ++j) {
        const double distance = static_cast<double>(shard_statistics[j][at + c]) - mean[c];
        terms[j] = shares[j] * (static_cast<double>(shard_statistics[j][at + channels + c]) +
                                distance * distance);
      }
      variance[c] = tree_sum(terms);
    }
    at += 2 * channels;
    update_moving(state(s.mean_state), mean.data(), count, s.momentum);
    update_moving(state(s.variance_state), variance.data(), count, s.momentum);
  }
}

}  // namespace lockstep
