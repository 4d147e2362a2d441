#include "lockstep/train/programs/devices/device_loss_program.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

DeviceLossProgram::DeviceLossProgram(Network& network, const TrainingOptions& options,
                                     const std::vector<DType>& inputs,
                                     std::shared_ptr<DeviceIteration> iteration, bool mixed)
    : BuiltInLossProgram(network, options, inputs, mixed),
      device_(network.device()),
      choice_{options.deterministic, options.precision.type == Precision::tf32},
      functions_(kernels::functions_for(device_)),
      memory_(memory_of(device_)),
      augments_(std::count(inputs.begin(), inputs.end(), DType::u8) > 0 &&
                functions_.augment_images != nullptr),
      iteration_(std::move(iteration)) {
  // A recording has fixed shapes, which sequences of different lengths do not have.
  if (std::ranges::any_of(network.inputs(), &NetworkValue::sequence)) iteration_->never_whole();
}

void DeviceLossProgram::prepare(std::span<const IndexRange> shards, int workers) {
  for (const IndexRange& shard : shards) {
    // Algorithms are chosen when plans are compiled.
    const kernels::ThreadChoice settings(choice_);
    // Before the first mini-batch no lengths are known.
    if (arrays_.empty() || !plans_.sequences()) {
      plans_.plan(shard.count);
      if (plans_.sequences()) continue;
    }
    const ShardShape shape = shard_shape(plans_, arrays_, shard);
    std::vector<StreamRun>& runs = runs_[shape];
    if (runs.size() >= static_cast<size_t>(workers)) continue;
    const std::shared_ptr<const Plan> plan = plans_.plan(shape);
    // The loss of a mini-batch stays a sum until the root divides it once.
    const std::vector<float> ones(static_cast<size_t>(shard.count),
                                  static_cast<float>(loss_scale_));
    while (runs.size() < static_cast<size_t>(workers)) {
      runs.push_back({PlanRun(plan, network_.packed(), network_.state_pointers()), {}});
      runs.back().plan.set_output_gradient(ShardPlans::kLosses, ones.data(),
                                           ones.size() * sizeof(float));
    }
  }
}

ShardStaging DeviceLossProgram::staging(int64_t rows) const {
  ShardShape shape{rows};
  if (plans_.sequences()) {
    shape.steps = shard_shape(plans_, arrays_, {0, batch_rows_}).steps;  // none has more
  }
  return ShardExchange(plans_, shape).bytes;
}

ShardShape DeviceLossProgram::sent_shape(const ShardTask& task) const {
  ShardShape shape{task.rows.count};
  if (!plans_.sequences()) return shape;
  shape.steps.resize(plans_.inputs());
  std::memcpy(shape.steps.data(), task.sent + ShardExchange::kShape,
              shape.steps.size() * sizeof(int64_t));
  return shape;
}

bool DeviceLossProgram::augmented(const ShardPlans::Array& array) const {
  return !maps_->empty() && array.type == DType::u8;
}

// Fills the memory that is sent: images or arrays, targets, weights, the step.
void DeviceLossProgram::fill(const ShardTask& task, const ShardShape& shape,
                             const ShardExchange& at) const {
  const auto rows = static_cast<size_t>(task.rows.count);
  const auto first = static_cast<size_t>(task.rows.first);
  std::byte* const host = task.sent;
  if (!shape.steps.empty()) {
    std::memcpy(host + ShardExchange::kShape, shape.steps.data(),
                shape.steps.size() * sizeof(int64_t));
  }
  for (size_t k = 0; k < arrays_.size(); ++k) {
    arrays_[k].copy(task.rows, shape.steps_of(plans_.arrays()[k].sequence), host + at.arrays[k]);
    if (!augmented(plans_.arrays()[k])) continue;
    const size_t bytes = rows * arrays_[k].row_bytes;
    std::memcpy(host + at.arrays[k] + round_up(bytes), maps_->data() + first,
                rows * sizeof maps_->front());
  }
  if (!class_weights_.empty()) {
    const int32_t* const labels = this->labels();
    auto* const weights = reinterpret_cast<float*>(host + at.weights);
    for (size_t i = 0; i < rows; ++i) {
      weights[i] =
          class_weights_[static_cast<size_t>(labels[first + i])] * static_cast<float>(loss_scale_);
    }
  }
  const RandomContext step{seed_, static_cast<uint64_t>(task.iteration), task.rows.first};
  std::memcpy(host + at.step, &step, sizeof step);
}

const DeviceLossProgram::Exchange& DeviceLossProgram::exchange_of(StreamRun& own,
                                                                  const ShardTask& task,
                                                                  const ShardShape& shape,
                                                                  const ShardExchange& at) {
  const auto [found, made] = own.exchanges.try_emplace({task.sent_there, task.returned_there});
  Exchange& exchange = found->second;
  if (!made) return exchange;
  const PlanRun& run = own.plan;
  std::vector<kernels::CopyChunk> inputs, results;
  const auto to_plan = [&](size_t offset, void* to, size_t bytes) {
    inputs.push_back({task.sent_there + offset, to, static_cast<int64_t>(bytes)});
  };
  const auto from_plan = [&](const float* from, size_t offset, size_t bytes) {
    results.push_back({from, task.returned_there + offset, static_cast<int64_t>(bytes)});
  };
  const auto rows = static_cast<size_t>(task.rows.count);
  for (size_t k = 0; k < plans_.arrays().size(); ++k) {
    const ShardPlans::Array& array = plans_.arrays()[k];
    void* const to = run.input(static_cast<int>(k));
    if (!augmented(array)) {
      to_plan(at.arrays[k], to, run.input_bytes(static_cast<int>(k)));
      continue;
    }
    const size_t bytes = rows * array.bytes();
    const std::byte* const from = task.sent_there + at.arrays[k];
    exchange.images.push_back({reinterpret_cast<const uint8_t*>(from),
                               reinterpret_cast<const ImageMap*>(from + round_up(bytes)),
                               static_cast<uint8_t*>(to), task.rows.count,
                               kernels::planar(array.shape[0], array.shape[1], array.shape[2])});
  }
  if (!class_weights_.empty()) {
    to_plan(at.weights, run.output_gradient(ShardPlans::kLosses), rows * sizeof(float));
  }
  to_plan(at.step, run.step(), sizeof(RandomContext));
  from_plan(run.output(ShardPlans::kLosses), at.losses, rows * sizeof(float));
  if (plans_.labeled()) {
    const int64_t outputs = plans_.outputs() * shape.steps_of(plans_.output_sequence());
    from_plan(run.output(ShardPlans::kScores), at.scores,
              rows * static_cast<size_t>(outputs) * sizeof(float));
  }
  size_t offset = at.statistics;
  for (const MovingStatistics& of : plans_.statistics()) {
    const size_t bytes = static_cast<size_t>(of.channels) * sizeof(float);
    from_plan(run.output(of.mean_output), offset, bytes);
    from_plan(run.output(of.variance_output), offset + bytes, bytes);
    offset += 2 * bytes;
  }
  for (size_t k = 0; k < plans_.carries().size(); ++k) {
    const size_t bytes = rows * plans_.arrays()[plans_.first_carry() + k].bytes();
    from_plan(run.output(plans_.carries()[k].output), offset, bytes);
    offset += bytes;
  }
  exchange.inputs = ChunkList(device_, inputs);
  exchange.results = ChunkList(device_, results);
  return exchange;
}

void DeviceLossProgram::add_inputs(const PlanRun& run, const Exchange& exchange) const {
  exchange.inputs.add(functions_, run.stream());
  for (const kernels::AugmentImages& images : exchange.images) {
    functions_.augment_images(images, run.stream());
  }
}

ShardGradients DeviceLossProgram::compute(const ShardTask& task) {
  const ShardShape shape = shard_shape(plans_, arrays_, task.rows);
  StreamRun& own = runs_.at(shape)[static_cast<size_t>(task.worker)];
  PlanRun& run = own.plan;
  const ShardExchange at(plans_, shape);
  fill(task, shape, at);
  const Exchange& exchange = exchange_of(own, task, shape, at);
  if (augments_ && exchange.images.empty() != maps_->empty()) {
    throw InternalError("[training] mini-batches with and without maps of images");
  }
  if (iteration_->whole()) {
    fail_point("backward", task.iteration, task.shard);
    iteration_->add([this, &run, &exchange] {
      memory_.follow(run.stream(), iteration_->stream());
      add_inputs(run, exchange);
      run.add_forward();
      exchange.results.add(functions_, run.stream());
      run.add_backward();
    });
    return {run.gradients(), run.stream()};
  }
  const RandomContext step{seed_, static_cast<uint64_t>(task.iteration), task.rows.first};
  memory_.follow(run.stream(), memory_.default_stream());
  memory_.copy_from_host(task.sent_there, task.sent, at.bytes.sent, run.stream());
  add_inputs(run, exchange);
  run.forward(step);
  exchange.results.add(functions_, run.stream());
  memory_.copy_to_host(task.returned, task.returned_there, at.bytes.returned, run.stream());
  fail_point("backward", task.iteration, task.shard);
  run.backward(step);
  return {run.gradients(), run.stream()};
}

void DeviceLossProgram::complete(const ShardTask& task) {
  const ShardShape shape = sent_shape(task);
  const ShardExchange at(plans_, shape);
  const auto* const loss = reinterpret_cast<const float*>(task.returned + at.losses);
  const auto* const weight = reinterpret_cast<const float*>(task.sent + at.weights);
  ShardSummary summary;
  summary.terms = task.rows.count;
  for (int64_t i = 0; i < task.rows.count; ++i) {
    const float factor = class_weights_.empty() ? 1 : weight[i] / static_cast<float>(loss_scale_);
    summary.add(static_cast<double>(factor) * static_cast<double>(loss[i]), task.rows.first + i);
  }
  if (plans_.output_sequence() >= 0) {
    count_steps(task, shape, at, summary);
  } else if (const int64_t pixels = plans_.pixels()) {
    const PixelCounts counts =
        count_pixels(reinterpret_cast<const float*>(task.returned + at.scores),
                     reinterpret_cast<const int32_t*>(task.sent + at.arrays.back()),
                     task.rows.count, plans_.outputs() / pixels, pixels);
    summary.terms = counts.labels;
    summary.correct = counts.correct;
  } else if (plans_.labeled()) {
    summary.correct = count_correct(reinterpret_cast<const float*>(task.returned + at.scores),
                                    reinterpret_cast<const int32_t*>(task.sent + at.arrays.back()),
                                    task.rows.count, plans_.outputs());
  }
  std::memset(task.summary, 0, summary_bytes());  // a smaller shard leaves fewer rows
  std::memcpy(task.summary, &summary, sizeof summary);
  std::memcpy(task.summary + sizeof summary, task.returned + at.statistics, at.statistic_bytes);
}

void DeviceLossProgram::count_steps(const ShardTask& task, const ShardShape& shape,
                                    const ShardExchange& at, ShardSummary& summary) const {
  const auto found = std::ranges::find_if(plans_.arrays(), [&](const auto& array) {
    return array.kind == ShardPlans::Array::Kind::lengths &&
           array.sequence == plans_.output_sequence();
  });
  const auto number = static_cast<size_t>(found - plans_.arrays().begin());
  const auto* const lengths = reinterpret_cast<const int32_t*>(task.sent + at.arrays[number]);
  const auto* scores = reinterpret_cast<const float*>(task.returned + at.scores);
  const auto* labels = reinterpret_cast<const int32_t*>(task.sent + at.arrays.back());
  const int64_t steps = shape.steps_of(plans_.output_sequence());
  summary.terms = std::accumulate(lengths, lengths + task.rows.count, int64_t{0});
  for (int64_t i = 0; plans_.labeled() && i < task.rows.count; ++i) {
    summary.correct += count_correct(scores + i * steps * plans_.outputs(), labels + i * steps,
                                     lengths[i], plans_.outputs());
  }
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
