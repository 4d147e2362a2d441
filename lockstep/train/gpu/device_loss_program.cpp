#include "lockstep/train/gpu/device_loss_program.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/train/input/targets.h"

namespace lockstep {
namespace {

constexpr int kScores = ShardPlans::kScores, kLosses = ShardPlans::kLosses;

}  // namespace

DeviceLossProgram::DeviceLossProgram(Network& network, const TrainingOptions& options,
                                     const std::vector<DType>& inputs)
    : BuiltInLossProgram(network, options, inputs),
      device_(network.device()),
      choice_{options.deterministic, options.precision.type == "tf32"},
      augments_(std::count(inputs.begin(), inputs.end(), DType::u8) > 0 &&
                DeviceAugmentation::possible(device_)) {}

void DeviceLossProgram::prepare(std::span<const IndexRange> shards, int workers) {
  for (const IndexRange& shard : shards) {
    std::vector<StreamRun>& runs = runs_[shard.count];
    if (runs.size() >= static_cast<size_t>(workers)) continue;
    const std::shared_ptr<const Plan> plan = [&] {
      // Algorithms are chosen when plans are compiled.
      const kernels::ThreadChoice settings(choice_);
      return plans_.plan(shard.count);
    }();
    // The loss of a mini-batch stays a sum until the root divides it once.
    const std::vector<float> ones(static_cast<size_t>(shard.count),
                                  static_cast<float>(loss_scale_));
    while (runs.size() < static_cast<size_t>(workers)) {
      runs.push_back({PlanRun(plan, network_.packed(), network_.state_pointers()), {}});
      runs.back().plan.set_output_gradient(kLosses, ones.data(), ones.size() * sizeof(float));
    }
  }
}

// Sets images or arrays as inputs.
void DeviceLossProgram::set_inputs(StreamRun& run, const ShardTask& task, const ShardExchange& at) {
  const auto rows = static_cast<size_t>(task.rows.count);
  const auto first = static_cast<size_t>(task.rows.first);
  run.images.resize(plans_.inputs().size());
  for (size_t k = 0; k < plans_.inputs().size(); ++k) {
    const ShardPlans::Input& input = plans_.inputs()[k];
    const int number = static_cast<int>(k);
    const size_t row_bytes = input.bytes(), bytes = rows * row_bytes;
    std::byte* const host = task.staging + at.inputs[k];
    std::memcpy(host, batch_->inputs[k].bytes().data() + first * row_bytes, bytes);
    if (batch_->maps.empty() || input.type != DType::u8) {
      run.plan.set_input(number, host, bytes);
      continue;
    }
    std::optional<DeviceAugmentation>& images = run.images[k];
    if (!images) images.emplace(input.shape, task.rows.count, run.plan, number, device_);
    std::memcpy(host + ShardExchange::padded(bytes), batch_->maps.data() + first,
                rows * sizeof batch_->maps[0]);
    images->add(host, run.plan);
  }
}

ShardGradients DeviceLossProgram::compute(const ShardTask& task) {
  StreamRun& stream = runs_.at(task.rows.count)[static_cast<size_t>(task.worker)];
  PlanRun& run = stream.plan;
  const auto rows = static_cast<size_t>(task.rows.count);
  const auto first = static_cast<size_t>(task.rows.first);
  const ShardExchange at(plans_, task.rows.count);
  std::byte* const host = task.staging;
  if (plans_.labelled()) {
    std::memcpy(host + at.targets, batch_->labels.data() + first, at.target_bytes);
  } else {
    const auto count = static_cast<size_t>(plans_.outputs());
    copy_targets(*batch_, first * count, rows * count, reinterpret_cast<float*>(host + at.targets));
  }
  if (!class_weights_.empty()) {
    auto* const weights = reinterpret_cast<float*>(host + at.weights);
    for (size_t i = 0; i < rows; ++i) {
      weights[i] = class_weights_[static_cast<size_t>(batch_->labels[first + i])] *
                   static_cast<float>(loss_scale_);
    }
    run.set_output_gradient(kLosses, weights, rows * sizeof(float));
  }
  const StepInfo step{seed_, static_cast<uint64_t>(task.iteration), task.rows.first};
  set_inputs(stream, task, at);
  run.set_input(plans_.target_input(), host + at.targets, at.target_bytes);
  run.forward(step);
  run.get_output(kLosses, host + at.losses, rows * sizeof(float));
  if (plans_.labelled()) {
    run.get_output(kScores, host + at.scores,
                   rows * static_cast<size_t>(plans_.outputs()) * sizeof(float));
  }
  std::byte* to = host + at.statistics;
  for (const MovingStatistics& of : plans_.statistics()) {
    const size_t bytes = static_cast<size_t>(of.channels) * sizeof(float);
    run.get_output(of.mean_output, to, bytes);
    run.get_output(of.variance_output, to + bytes, bytes);
    to += 2 * bytes;
  }
  fail_point("backward", task.iteration, task.shard);
  run.backward(step);
  return {run.gradients(), run.stream()};
}

void DeviceLossProgram::complete(const ShardTask& task) {
  const ShardExchange at(plans_, task.rows.count);
  const std::byte* const host = task.staging;
  const auto* const loss = reinterpret_cast<const float*>(host + at.losses);
  const auto* const weight = reinterpret_cast<const float*>(host + at.weights);
  ShardSummary summary;
  for (int64_t i = 0; i < task.rows.count; ++i) {
    const float factor = class_weights_.empty() ? 1 : weight[i] / static_cast<float>(loss_scale_);
    summary.loss += static_cast<double>(factor) * static_cast<double>(loss[i]);
  }
  if (plans_.labelled()) {
    summary.correct = count_correct(reinterpret_cast<const float*>(host + at.scores),
                                    reinterpret_cast<const int32_t*>(host + at.targets),
                                    task.rows.count, plans_.outputs());
  }
  std::memcpy(task.summary, &summary, sizeof summary);
  std::memcpy(task.summary + sizeof summary, host + at.statistics,
              summary_bytes() - sizeof summary);
}

void DeviceLossProgram::wait() {
  for (const auto& [size, runs] : runs_) {
    for (const StreamRun& run : runs) run.plan.synchronize();
  }
}

void DeviceLossProgram::join() {
  for (const auto& [size, runs] : runs_) {
    for (const StreamRun& run : runs) run.plan.join();
  }
}

}  // namespace lockstep
