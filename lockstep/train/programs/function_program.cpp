#include "lockstep/train/programs/function_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/messages/serialize.h"

namespace lockstep {

struct Shard::State {
  Network& network;
  // Null if a loss is evaluated without recording; the following members are then unused.
  FunctionProgram* program = nullptr;
  FunctionProgram::Worker* worker = nullptr;
  ThreadTimer* charge = nullptr;
  FunctionSummary* summary = nullptr;
  IndexRange range;
  StepInfo step;
  std::vector<Tensor> rows;
  // Represents all parameters on the tape. Its gradient has the layout of the plans' gradients.
  Tensor parameters;
  std::map<const FunctionProgram::ShardPlan*, size_t> used;  // runs of this shard so far
  bool reached = false;                                      // by the backward pass
};

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) {
  throw InvalidArgument("[sharded_value_and_gradient] " + what, hint);
}

void copy(Device device, void* to, const void* from, size_t bytes) {
  if (device.is_cpu()) {
    std::memcpy(to, from, bytes);
    return;
  }
  DeviceMemory& memory = memory_of(device);
  memory.copy(to, from, bytes, memory.default_stream());
}

Tensor row_major(const Tensor& tensor) { return convert(tensor, tensor.spec().plain()); }

// Copies values to memory of `device`.
Tensor copy_of(const float* from, const Shape& shape, Device device) {
  Tensor tensor(shape, DType::f32, device);
  copy(device, tensor.raw(), from, tensor.bytes());
  return tensor;
}

// Adds gradients of parameters that the loss used directly to the gradients of the plans.
void add_direct(const GradientLayout& layout, const std::vector<size_t>& parameters,
                std::span<const Tensor> gradients, const Tensor& all) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& entry = layout.entries[parameters[i]];
    const Tensor term = convert(gradients[i], entry.spec);
    float* const sum = static_cast<float*>(all.raw()) + entry.offset / sizeof(float);
    void* const stream = all.device().is_cpu() ? nullptr : memory_of(all.device()).default_stream();
    kernels::table_for(all.device())
        .add(sum, static_cast<const float*>(term.raw()), sum, term.bytes() / sizeof(float), stream);
  }
}

// Adds up the values that a loss function returned.
void take_losses(const Tensor& losses, const IndexRange& range, size_t shards,
                 FunctionSummary& summary) {
  const bool defined = losses.defined() && losses.dtype() == DType::f32;
  const int64_t count = defined ? losses.shape().elements() : 0;
  summary.whole = count == 1 && range.count != 1;
  if (summary.whole && shards > 1) {
    refuse("the loss of a shard of " + std::to_string(range.count) +
               " observations is one value; losses across observations are accepted only if the "
               "mini-batch is one shard, but it has " +
               std::to_string(shards),
           "return one value for each observation (no ops::mean or ops::sum), or set shard_size to "
           "the size of the mini-batch");
  }
  if (!summary.whole && count != range.count) {
    refuse("expected a loss of " + std::to_string(range.count) +
           " values, one f32 for each observation of the shard, received " +
           (losses.defined() ? losses.spec().to_string() : "an undefined tensor"));
  }
  const std::vector<float> values = losses.to_vector();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    summary.loss += value;
    if (std::isfinite(value)) continue;
    summary.last_not_finite = range.first + static_cast<int64_t>(i);
    if (summary.not_finite >= 0) continue;
    summary.not_finite = summary.last_not_finite;
    summary.found = value;
  }
}

// Rows of a row-major tensor, as a view.
Tensor rows_of(const Tensor& tensor, const IndexRange& range) {
  std::vector<int64_t> dims = tensor.shape().dims();
  const size_t row = tensor.bytes() / static_cast<size_t>(dims[0]);
  dims[0] = range.count;
  return Tensor::view(
      static_cast<std::byte*>(tensor.raw()) + static_cast<size_t>(range.first) * row,
      {Shape(dims), tensor.dtype(), nullptr}, std::make_shared<const Tensor>(tensor),
      tensor.device());
}

}  // namespace

FunctionProgram::FunctionProgram(Network& network, const FunctionProgramOptions& options,
                                 StepProfile* profile)
    : network_(network), options_(options), profile_(profile) {}

void FunctionProgram::set_batch(const std::vector<Tensor>& batch, const ShardLoss& loss) {
  if (batch.empty()) refuse("the mini-batch has no tensors");
  const Device device = network_.device();
  for (size_t i = 0; i < batch.size(); ++i) {
    const Tensor& t = batch[i];
    if (t.defined() && (t.device().is_cpu() || t.device() == device) && t.shape().rank() > 0 &&
        t.shape()[0] > 0 && t.shape()[0] == batch[0].shape()[0]) {
      continue;
    }
    refuse("tensor " + std::to_string(i) +
           " of the mini-batch must have as many rows as the first one, at least one, on the CPU" +
           (device.is_cpu() ? "" : " or on the network's device") + "; received " +
           (t.defined() ? t.spec().to_string() + " on " + to_string(t.device())
                        : "an undefined tensor"));
  }
  batch_.clear();
  for (const Tensor& t : batch) batch_.push_back(row_major(t).to(device));
  loss_ = &loss;
}

void FunctionProgram::wait() {
  if (network_.device().is_cpu()) return;
  DeviceMemory& memory = memory_of(network_.device());
  memory.synchronize(memory.default_stream());
}

int FunctionProgram::most_workers() const {
  return network_.device().is_cpu() ? std::numeric_limits<int>::max() : 1;
}

std::vector<uint64_t> FunctionProgram::parameter_ids() const {
  std::vector<uint64_t> ids;
  for (const auto& p : network_.parameters()) ids.push_back(p.value.id());
  return ids;
}

bool FunctionProgram::is_present() const {
  return layout_version_ > 0 && parameter_ids() == parameters_;
}

// The plan of the largest shard fixes the gradient layout, independently of the order of threads.
void FunctionProgram::prepare(std::span<const IndexRange> shards, int workers) {
  if (!network_.initialized()) refuse("the network is not initialized");
  if (!is_present()) {
    workers_.clear();
    if (profile_) profile_->passes.clear();
    forget_plans();
    layout_ = {};
    std::vector<DType> types = expected_;
    if (types.empty()) {
      types.assign(network_.input_shapes().size(),
                   batch_.empty() ? DType::f32 : batch_.front().dtype());
    }
    layout_ = plan({shards[0].count, true, false, types, {}}).plan->gradient_layout();
    parameters_ = parameter_ids();
    ++layout_version_;
  }
  if (workers_.size() < static_cast<size_t>(workers)) {
    workers_.resize(static_cast<size_t>(workers));
  }
  summaries_.assign(shards.size(), {});
  if (!profile_) return;
  const MutexLock lock(mutex_);
  for (const auto& [key, made] : plans_) profile_->open(*made.plan);
}

void FunctionProgram::forget_plans() {
  const MutexLock lock(mutex_);
  plans_.clear();
}

const FunctionProgram::ShardPlan& FunctionProgram::plan(const ForwardStatistics::Key& key) {
  const MutexLock lock(mutex_);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  LoweredNetwork lowered = network_.lower(key.n, {key.training, key.inputs, key.outputs});
  ShardPlan made;
  PlanOptions options;
  options.gradients = true;
  options.precision = options_.precision;
  options.input_gradients = key.input_gradients;
  options.total_output_gradients = lowered.outputs.size() > 1;
  for (int value : lowered.outputs) {
    made.outputs.push_back(lowered.graph.shape(value));
    options.differentiated.push_back(lowered.graph.mark_output(value));
  }
  if (!layout_.entries.empty()) options.gradient_layout = &layout_;
  made.statistics = lowered.mark_statistics();
  const kernels::ThreadChoice settings(options_.choice);
  made.plan = std::make_shared<const Plan>(lowered.graph, network_.parameter_shapes(), options,
                                           network_.device());
  return plans_.emplace(key, std::move(made)).first->second;
}

ShardGradients FunctionProgram::compute(const ShardTask& task) {
  const Device device = network_.device();
  std::optional<kernels::ThreadChoice> settings;
  if (!device.is_cpu()) settings.emplace(options_.choice);
  ThreadTimer charge(profile_, task.worker);
  charge(&StepAccounts::waiting);
  FunctionSummary& summary =
      task.repeat > 0 ? repeated_[task.repeat - 1] : summaries_[static_cast<size_t>(task.shard)];
  summary = {};
  Worker& worker = workers_[static_cast<size_t>(task.worker)];
  const TensorSpec flat{Shape{static_cast<int64_t>(layout_.bytes / sizeof(float))}, DType::f32,
                        nullptr};
  static std::byte nowhere;  // never read: the tensor only stands on the tape
  Shard::State state{
      .network = network_,
      .program = this,
      .worker = &worker,
      .charge = &charge,
      .summary = &summary,
      .range = task.rows,
      .step = {options_.seed, static_cast<uint64_t>(task.iteration), task.rows.first},
      .rows = {},
      .parameters = Tensor::view(&nowhere, flat, nullptr, device),
      .used = {}};
  for (const Tensor& t : batch_) state.rows.push_back(rows_of(t, task.rows));
  const std::vector<Tensor> parameters = network_.parameter_values();
  Tape tape;
  tape.watch(state.parameters);
  tape.watch(parameters);
  Shard shard(state);
  const Tensor losses = (*loss_)(shard);
  take_losses(losses, task.rows, summaries_.size(), summary);
  // If the loss is a sum, the derivative of each term is 1.
  Tensor total = summary.whole ? losses : ops::sum(losses);
  if (options_.loss_scale != 1)
    total = apply_op(ops::make_sum(options_.loss_scale), {total}).front();
  std::vector<size_t> direct;
  std::vector<Tensor> wanted{state.parameters};
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!tape.reads(parameters[p])) continue;
    direct.push_back(p);
    wanted.push_back(parameters[p]);
  }
  const auto refuse_constant = [] {
    refuse("the loss does not depend on the network's parameters",
           "compute it from shard.forward(), by ops of lockstep::ops");
  };
  if (!tape.tracks({&total, 1}) && !tape.from_gradients(total)) refuse_constant();
  fail_point("backward", task.iteration, task.shard);
  std::vector<Tensor> gradients = tape.gradient(total, wanted);
  if (!state.reached && direct.empty()) refuse_constant();
  add_direct(layout_, direct, std::span(gradients).subspan(1), gradients[0]);
  charge(&StepAccounts::losses);
  worker.gradients = std::move(gradients[0]);
  return {static_cast<std::byte*>(worker.gradients.raw()),
          device.is_cpu() ? nullptr : memory_of(device).default_stream()};
}

Digest FunctionProgram::summary_digest(const ShardTask& task) const {
  const Bytes bytes = encode(summary_of(task));
  return digest_of(bytes.data(), bytes.size());
}

Bytes FunctionProgram::encode_summaries(const IndexRange& shards) const {
  const auto first = summaries_.begin() + shards.first;
  return encode(std::vector<FunctionSummary>(first, first + shards.count));
}

void FunctionProgram::decode_summaries(const IndexRange& shards, const Bytes& bytes) {
  auto theirs = decode<std::vector<FunctionSummary>>(bytes);
  if (static_cast<int64_t>(theirs.size()) != shards.count) {
    throw InternalError("[sharded_value_and_gradient] a member of the group has " +
                        std::to_string(theirs.size()) + " shards instead of " +
                        std::to_string(shards.count));
  }
  std::move(theirs.begin(), theirs.end(), summaries_.begin() + shards.first);
}

bool FunctionProgram::is_finite() const {
  return std::all_of(summaries_.begin(), summaries_.end(),
                     [](const FunctionSummary& s) { return s.not_finite < 0; });
}

void FunctionProgram::check_finite(int64_t iteration) const {
  for (const FunctionSummary& s : summaries_) {
    if (s.not_finite < 0) continue;
    // Batch normalisation spreads one non-finite value over all observations of its shard.
    const std::string first = std::to_string(s.not_finite);
    const std::string rows =
        s.not_finite == s.last_not_finite
            ? "observation " + first
            : "observations " + first + " to " + std::to_string(s.last_not_finite);
    throw Error("[sharded_value_and_gradient] the loss of " +
                    (s.whole ? "the mini-batch" : rows + " of the mini-batch") + " is " +
                    std::to_string(s.found) + " in iteration " + std::to_string(iteration),
                "a lower learning rate often helps");
  }
}

void FunctionProgram::follow_statistics(const std::function<float*(int k)>& state) {
  const std::vector<ForwardStatistics>& first = summaries_[0].runs;
  for (size_t j = 1; j < summaries_.size(); ++j) {
    bool alike = summaries_[j].runs.size() == first.size();
    for (size_t r = 0; alike && r < first.size(); ++r) {
      alike = summaries_[j].runs[r].values.size() == first[r].values.size();
    }
    if (!alike) {
      refuse("shard " + std::to_string(j) +
                 " ran the network differently from shard 0, so batch statistics cannot be "
                 "combined",
             "run it equally often, with the same options");
    }
  }
  for (size_t r = 0; r < first.size(); ++r) {
    std::vector<IndexRange> rows;
    std::vector<const float*> values;
    for (const FunctionSummary& summary : summaries_) {
      rows.push_back({0, summary.runs[r].key.n});
      values.push_back(summary.runs[r].values.data());
    }
    lockstep::follow_statistics(plan(first[r].key).statistics, rows, values, state);
  }
}

// Uses as many runs as the threads have, and the medians of the runs that exist.
void FunctionProgram::time_passes(ThreadPool& pool, PassFloors& floors) {
  // If the network was initialized again or moved, the memory of its runs has been freed.
  if (!is_present()) return;
  const MutexLock lock(mutex_);
  for (const auto& [key, made] : plans_) {
    const auto accounts = profile_->passes.find(made.plan.get());
    if (accounts == profile_->passes.end()) continue;
    std::vector<PlanRun*> runs;
    double calls = 0;
    for (Worker& worker : workers_) {
      const auto found = worker.runs.find(&made);
      if (found == worker.runs.end() || found->second.empty()) continue;
      runs.push_back(found->second.front().get());
      calls += static_cast<double>(worker.calls[&made]);
    }
    floors.add(accounts->second, calls,
               lockstep::time_passes(pool, *made.plan, runs, {options_.seed, 1, 0}));
  }
}

int64_t Shard::first() const { return state_.range.first; }
int64_t Shard::size() const { return state_.range.count; }
const StepInfo& Shard::step() const { return state_.step; }

const Tensor& Shard::operator[](size_t i) const {
  if (i >= state_.rows.size()) {
    refuse("the mini-batch has " + std::to_string(state_.rows.size()) + " tensors, but number " +
           std::to_string(i) + " is requested");
  }
  return state_.rows[i];
}

Tensor Shard::forward(const Tensor& input, const ShardForwardOptions& options) {
  return forward_all({input}, options).front();
}

std::vector<Tensor> Shard::forward_all(const std::vector<Tensor>& inputs,
                                       const ShardForwardOptions& options) {
  State& s = state_;
  Network& network = s.network;
  if (s.program == nullptr) {
    return network.forward_all(inputs,
                               {.training = false, .record = false, .outputs = options.outputs});
  }
  ThreadTimer& charge = *s.charge;
  charge(&StepAccounts::losses);
  const Device device = network.device();
  const int64_t n = network.check_inputs(inputs);
  const bool differentiable = Tape::any_tracks(inputs);
  ForwardStatistics::Key key{n, options.training, differentiable, {}, options.outputs};
  for (const Tensor& input : inputs) key.inputs.push_back(input.dtype());
  const FunctionProgram::ShardPlan& plan = s.program->plan(key);
  auto& runs = s.worker->runs[&plan];
  const size_t number = s.used[&plan]++;
  if (runs.size() == number) {
    const kernels::ThreadChoice settings(s.program->options_.choice);
    runs.push_back(
        std::make_unique<PlanRun>(plan.plan, network.packed(), network.state_pointers()));
  }
  PlanRun* const run = runs[number].get();
  charge(&StepAccounts::plans);
  if (s.program->profile_) ++s.worker->calls[&plan];
  const auto forward = [run, inputs, device, &plan, &s, &charge] {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor plain = row_major(inputs[i]);
      copy(device, run->input(static_cast<int>(i)), plain.raw(), plain.bytes());
    }
    charge(&StepAccounts::inputs);
    run->forward(s.step, charge.watch(*plan.plan));
    run->join();
  };
  forward();

  std::vector<Tensor> outputs;
  for (const Shape& shape : plan.outputs) {
    outputs.push_back(copy_of(run->output(static_cast<int>(outputs.size())), shape, device));
  }
  if (!plan.statistics.empty()) {
    ForwardStatistics followed{key, {}};
    for (const MovingStatistics& of : plan.statistics) {
      for (int output : {of.mean_output, of.variance_output}) {
        const auto values = copy_of(run->output(output), Shape{of.channels}, device).to_vector();
        followed.values.insert(followed.values.end(), values.begin(), values.end());
      }
    }
    s.summary->runs.push_back(std::move(followed));
  }

  charge(&StepAccounts::results);
  std::vector<Tensor> tracked = inputs;
  tracked.push_back(s.parameters);
  Tape::record_everywhere(
      tracked, outputs,
      [run, forward, device, &plan, &s, &charge, tracked, differentiable, stale = false](
          const std::vector<Tensor>& output_gradients, const std::vector<bool>& wanted) mutable {
        charge(&StepAccounts::losses);
        // A backward run reuses the memory of its inputs, so a second one needs a new forward run.
        if (stale) forward();
        stale = true;
        for (size_t k = 0; k < output_gradients.size(); ++k) {
          // Zeros where the loss does not depend on this output.
          const Tensor plain = output_gradients[k].defined()
                                   ? row_major(output_gradients[k])
                                   : Tensor::zeros(plan.outputs[k], DType::f32, device);
          copy(device, run->output_gradient(static_cast<int>(k)), plain.raw(), plain.bytes());
        }
        charge(&StepAccounts::inputs);
        run->backward(s.step, charge.watch(*plan.plan));
        run->join();
        s.reached = true;
        std::vector<Tensor> results(tracked.size() + output_gradients.size());
        for (size_t k = 0; k < output_gradients.size(); ++k) {
          const float* const from = run->total_output_gradient(static_cast<int>(k));
          if (!from || !wanted[tracked.size() + k]) continue;
          results[tracked.size() + k] = copy_of(from, plan.outputs[k], device);
        }
        for (size_t i = 0; differentiable && i + 1 < tracked.size(); ++i) {
          const float* const from = run->input_gradient(static_cast<int>(i));
          if (wanted[i] && from) results[i] = copy_of(from, tracked[i].shape(), device);
        }
        results[tracked.size() - 1] =
            Tensor::view(run->gradients(), tracked.back().spec(), nullptr, device);
        charge(&StepAccounts::results);
        return results;
      },
      Tape::Outputs::linked);
  return outputs;
}

std::vector<float> evaluate_loss(Network& network, const ShardLoss& loss,
                                 const std::vector<Tensor>& batch) {
  Shard::State state{.network = network,
                     .range = {0, batch.at(0).shape()[0]},
                     .step = {},
                     .rows = batch,
                     .parameters = {},
                     .used = {}};
  Shard shard(state);
  FunctionSummary summary;
  const Tensor losses = loss(shard);
  take_losses(losses, state.range, 2, summary);
  return losses.to_vector();
}

}  // namespace lockstep
