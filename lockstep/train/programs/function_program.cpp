#include "lockstep/train/programs/function_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layers/normalized_values.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/train/programs/shard_state.h"

namespace lockstep {
namespace {

using shards::check_losses;
using shards::refuse;
using shards::row_major;

// Adds gradients of parameters that the loss used directly to the gradients of the plans.
void add_direct(const GradientLayout& layout, const std::vector<size_t>& parameters,
                std::span<const Tensor> gradients, const Tensor& all) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& entry = layout.entries[parameters[i]];
    const Tensor term = convert(gradients[i], entry.spec);
    float* const sum = static_cast<float*>(all.raw()) + entry.offset / sizeof(float);
    void* const stream = all.device().is_cpu() ? nullptr : eager_stream_of(all.device());
    kernels::functions_for(all.device())
        .add(sum, static_cast<const float*>(term.raw()), sum, term.bytes() / sizeof(float), stream);
  }
}

// Sets the gradients of parameters to 0 that no run of the network has reached.
void fill_unreached(const GradientLayout& layout, const std::vector<bool>& reached,
                    const Tensor& all) {
  for (size_t p = 0; p < reached.size(); ++p) {
    if (reached[p]) continue;
    const GradientLayout::Entry& entry = layout.entries[p];
    eager_zero(all.device(), static_cast<std::byte*>(all.raw()) + entry.offset, entry.spec.bytes());
  }
}

// Adds up the values that a loss function returned.
void add_losses(std::span<const float> values, const IndexRange& range, FunctionSummary& summary) {
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
                                 IterationProfile* profile)
    : network_(network), options_(options), profile_(profile) {}

void FunctionProgram::set_batch(const std::vector<Tensor>& batch, const ShardLoss& loss, bool fresh,
                                std::map<size_t, RaggedTensor> ragged) {
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
  // An iteration that failed may still use its memory.
  if (std::exchange(is_broken_, false)) wait();
  finished_ = present_ = (present_ + 1) % kIterationSlots;
  present().batch.clear();
  present().here.assign(batch.size(), {});
  for (size_t i = 0; i < batch.size(); ++i) present().batch.push_back(upload(batch[i], i));
  present().ragged = std::move(ragged);
  loss_ = &loss;
  loss_type_ = type_of(loss);
  bundled_loss_ = &bundled_losses_[*loss_type_];
  fresh_ = fresh;
  const int64_t made = network_.made_rows();
  if (made == 0 || rows() <= made) return;
  refuse("the mini-batch has " + std::to_string(rows()) +
             " observations, but the network's states by row are made for " + std::to_string(made),
         "call make_row_states(rows) with the largest number of observations");
}

Tensor FunctionProgram::rows_here(size_t i, const IndexRange& range) const {
  const Tensor& all = present().here[i];
  return all.defined() ? rows_of(all, range) : Tensor();
}

// Sequences have room for the longest of the shard.
void FunctionProgram::take_rows(const Iteration& it, Shard::State& state) {
  std::vector<Tensor> lengths;
  for (size_t i = 0; i < it.batch.size(); ++i) {
    const auto found = it.ragged.find(i);
    if (found == it.ragged.end()) {
      state.rows.push_back(rows_of(it.batch[i], state.range));
      continue;
    }
    const RaggedTensor& ragged = found->second;
    const int64_t steps = steps_capacity(ragged.rows.longest(state.range));
    const Shape padded = shape_of_dims({state.range.count, steps}, ragged.step.dims(), 0);
    state.rows.push_back(state.filled({padded, ragged.type, nullptr},
                                      [&](void* to) { ragged.rows.copy(state.range, steps, to); }));
    state.lengths.push_back(i);
    lengths.push_back(rows_of(it.batch[i], state.range));
  }
  state.rows.insert(state.rows.end(), lengths.begin(), lengths.end());
}

// Returns the tensor on the network's device, without waiting for earlier work.
Tensor FunctionProgram::upload(const Tensor& tensor, size_t i) {
  const Tensor plain = row_major(tensor);
  const Device device = network_.device();
  if (plain.device() == device) return plain;
  DeviceMemory& memory = memory_of(device);
  Iteration& it = present();
  if (i >= it.uploads.size()) {  // tensors before it may lie on the device
    it.uploads.resize(i + 1);
    it.upload_bytes.resize(i + 1);
  }
  if (!it.uploads[i] || it.upload_bytes[i] < plain.bytes()) {
    it.uploads[i] = std::make_unique<Pinned>(memory, plain.bytes());
    it.upload_bytes[i] = plain.bytes();
  }
  std::memcpy(it.uploads[i]->data(), plain.raw(), plain.bytes());
  it.here[i] = Tensor::view(it.uploads[i]->data(), plain.spec(), nullptr);
  Tensor there(plain.shape(), plain.dtype(), device);
  memory.copy_from_host(there.raw(), it.uploads[i]->data(), plain.bytes(), memory.default_stream());
  return there;
}

size_t FunctionProgram::slot_of(const ShardTask& task) const {
  for (size_t i = 0; i < kIterationSlots; ++i) {
    // The present one first: it may be computed again under the same number.
    const size_t slot = (present_ + kIterationSlots - i) % kIterationSlots;
    if (iterations_[slot].number == task.iteration) return slot;
  }
  return present_;
}

void FunctionProgram::wait() {
  if (network_.device().is_cpu()) return;
  DeviceMemory& memory = memory_of(network_.device());
  memory.synchronize(memory.default_stream());
  for (const Worker& worker : workers_) {
    if (worker.stream) memory.synchronize(worker.stream->get());
  }
}

void FunctionProgram::join() {
  if (network_.device().is_cpu()) return;
  DeviceMemory& memory = memory_of(network_.device());
  for (const Worker& worker : workers_) {
    if (worker.stream) memory.follow(memory.default_stream(), worker.stream->get());
  }
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
                   present().batch.empty() ? DType::f32 : present().batch.front().dtype());
    }
    const bool carry = !network_.row_states().empty();
    const ShardPlan& first = plan({shards[0].count, true, carry, false, types, {}, {}});
    layout_ = first.plan->gradient_layout();
    has_statistics_ = !first.statistics.empty();
    parameters_ = parameter_ids();
    ++layout_version_;
  }
  if (workers_.size() < static_cast<size_t>(workers)) {
    workers_.resize(static_cast<size_t>(workers));
  }
  present().summaries.assign(shards.size(), {});
  if (!network_.device().is_cpu()) {
    for (Worker& worker : workers_) {
      if (!worker.stream) worker.stream = std::make_unique<StreamForEager>(network_.device());
    }
    if (present().transfers.size() < shards.size()) present().transfers.resize(shards.size());
  }
  if (!profile_) return;
  const MutexLock lock(mutex_);
  for (const auto& [use, plans] : plans_) {
    for (const auto& [key, made] : plans) profile_->open(*made.plan);
  }
}

void FunctionProgram::forget_plans() {
  const MutexLock lock(mutex_);
  plans_.clear();
  bundled_losses_.clear();
  bundled_loss_ = loss_type_ ? &bundled_losses_[*loss_type_] : nullptr;
}

const FunctionProgram::ShardPlan& FunctionProgram::plan(const ForwardStatistics::Key& key,
                                                        Use use) {
  const MutexLock lock(mutex_);
  Plans& plans = plans_[use];
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  LoweredNetwork lowered =
      network_.lower(key.n, {key.training, key.inputs, key.outputs, key.carry, key.steps});
  std::exception_ptr refused;
  try {
    if (key.training) require_values_to_normalize(lowered, "[sharded_value_and_gradient] ");
  } catch (const InvalidArgument&) {
    refused = std::current_exception();
  }
  PlanOptions options;
  options.gradients = true;
  options.precision = options_.precision;
  options.input_gradients = key.input_gradients;
  if (!layout_.entries.empty()) options.gradient_layout = &layout_;
  options.sums_over_shards = use == Use::bundles;
  const kernels::ThreadChoice settings(options_.choice);
  ShardPlan made{compile(network_, std::move(lowered), options), refused};
  return plans.emplace(key, std::move(made)).first->second;
}

ShardGradients FunctionProgram::compute(const ShardTask& task, bool in_bundle) {
  const Device device = network_.device();
  std::optional<kernels::ThreadChoice> settings;
  std::optional<EagerStream> stream;
  ThreadTimer charge(profile_, task.worker);
  charge(&IterationAccounts::waiting);
  Iteration& it = present();
  FunctionSummary& summary = it.summary_of(task);
  summary = {};
  Worker& worker = workers_[static_cast<size_t>(task.worker)];
  DeviceTransfers* transfers = nullptr;
  if (!device.is_cpu()) {
    it.number = task.iteration;
    is_broken_ = true;
    settings.emplace(options_.choice);
    DeviceMemory& memory = memory_of(device);
    memory.follow(worker.stream->get(), memory.default_stream());
    stream.emplace(device, worker.stream->get());
    transfers = &it.transfers_of(task);
    transfers->begin();
  }
  const TensorSpec flat{Shape{static_cast<int64_t>(layout_.bytes / sizeof(float))}, DType::f32,
                        nullptr};
  static std::byte nowhere;  // never read: the tape needs the tensor, not its values
  Shard::State state{
      .network = network_,
      .program = this,
      .worker = &worker,
      .charge = &charge,
      .summary = &summary,
      .transfers = transfers,
      .range = task.rows,
      .step = {options_.seed, static_cast<uint64_t>(task.iteration), task.rows.first},
      .rows = {},
      .parameters = Tensor::view(&nowhere, flat, nullptr, device),
      .used = {},
      .in_bundle = in_bundle,
      .by_step = options_.by_step};
  take_rows(it, state);
  if (it.summaries.size() > 1) refuse_coupled(state);
  // Only the shard's own runs carry states by row.
  const LimitedForward limit(ForwardLimit::carry_refused);
  const std::vector<Tensor> parameters = network_.parameter_values();
  Tape tape;
  tape.watch(state.parameters);
  tape.watch(parameters);
  Shard shard(state);
  const Tensor losses = state.losses_of(*loss_, shard);
  summary.terms = state.terms();
  summary.has_one_value = check_losses(losses, task.rows, it.summaries.size());
  if (transfers) {
    const Tensor plain = row_major(losses);
    transfers->read(device, static_cast<const float*>(plain.raw()), plain.shape().elements());
  } else {
    add_losses(losses.to_vector(), task.rows, summary);
  }
  // If the loss is a sum, the derivative of each term is 1.
  Tensor total = summary.has_one_value ? losses : ops::sum(losses);
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
  if (state.swept.empty() && direct.empty()) refuse_constant();
  charge(&IterationAccounts::losses);
  if (in_bundle) {
    if (!direct.empty() || state.kept.size() != bundled_loss_->branches.size()) deviates_ = true;
    return {};
  }
  note_branches(state, !direct.empty());
  if (state.gradients != nullptr) fill_unreached(layout_, state.reached, gradients[0]);
  add_direct(layout_, direct, std::span(gradients).subspan(1), gradients[0]);
  charge(&IterationAccounts::losses);
  worker.gradients = std::move(gradients[0]);
  if (device.is_cpu()) return {static_cast<std::byte*>(worker.gradients.raw()), nullptr};
  // What a loss makes at its first call and keeps must be complete before other streams use it.
  if (!std::exchange(has_computed_, true)) memory_of(device).synchronize(worker.stream->get());
  is_broken_ = false;
  return {static_cast<std::byte*>(worker.gradients.raw()), worker.stream->get()};
}

void FunctionProgram::complete(const ShardTask& task) {
  if (network_.device().is_cpu()) return;
  finished_ = slot_of(task);
  FunctionSummary& summary = iterations_[finished_].summary_of(task);
  const DeviceTransfers& transfers = iterations_[finished_].transfers_of(task);
  size_t next = 0;
  for (ForwardStatistics& run : summary.runs) {
    for (std::vector<float>* const all : {&run.values, &run.carried}) {
      for (auto to = all->begin(); to != all->end();) {
        const std::span<const float> values = transfers.of(next++);
        to = std::copy(values.begin(), values.end(), to);
      }
    }
  }
  add_losses(transfers.of(next), task.rows, summary);
}

// Uses as many runs as the threads have, and the medians of the runs that exist.
void FunctionProgram::time_passes(ThreadPool& pool, PassFloors& floors) {
  // If the network was initialized again or moved, the memory of its runs has been freed.
  if (!is_present()) return;
  const MutexLock lock(mutex_);
  for (const auto& [use, plans] : plans_) {
    for (const auto& [key, made] : plans) {
      const auto accounts = profile_->passes.find(made.plan.get());
      if (accounts == profile_->passes.end()) continue;
      std::vector<PlanRun*> runs;
      double calls = 0;
      for (Worker& worker : workers_) {
        const auto found = worker.runs.find(&made);
        PlanRun* run = worker.turns.empty() ? nullptr : worker.turns.front().find(*made.plan);
        if (found != worker.runs.end() && !found->second.empty()) run = found->second.front().get();
        if (run == nullptr) continue;
        runs.push_back(run);
        calls += static_cast<double>(worker.calls[&made]);
      }
      floors.add(accounts->second, calls,
                 lockstep::time_passes(pool, *made.plan, runs, {options_.seed, 1, 0}));
    }
  }
}

}  // namespace lockstep
