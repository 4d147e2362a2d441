// Losses and gradients computed by shards: see custom_loop.h.
#include <algorithm>
#include <cstring>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/nn/inputs/input_statistics.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/tensor/reshape.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/reduce/schedule.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/iteration/devices/device_executor.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/iteration/thread_executor.h"
#include "lockstep/train/optimizer/gradient_sum.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/profile/shard_group_profile.h"
#include "lockstep/train/programs/function_program.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_options(const std::string& what, const std::string& hint = {}) {
  throw InvalidArgument("[ShardGroup] " + what, hint);
}

// Converts the options to training options, whose checks apply.
TrainingOptions training_options(const Network& network, const ShardGroupOptions& options) {
  if (options.threads < 0 || options.shard_size < 0) {
    refuse_options("threads and shard_size must be >= 0, received " +
                   std::to_string(options.threads) + " and " + std::to_string(options.shard_size));
  }
  if (options.check_frequency < 0) refuse_options("check_frequency must be >= 0");
  if (!(options.limit > 0)) refuse_options("limit must be > 0");
  if (!network.initialized()) refuse_options("the network is not initialized");
  TrainingOptions all;
  all.precision.type = options.precision;
  all.precision.loss_scale = options.loss_scale;
  all.check();
  const bool on_cpu = network.device().is_cpu();
  if (options.precision == Precision::tf32 && on_cpu) {
    throw Unsupported("[ShardGroup] precision = tf32 is supported only on GPUs",
                      "set Precision::fp32, or Precision::bf16 if the processor supports it");
  }
  if (options.precision == Precision::tf32)
    kernels::check_tf32(kernels::table_for(network.device()));
  if (is_narrow(all.precision.dtype())) {
    kernels::check_precision(kernels::table_for(network.device()), all.precision.dtype());
  }
  if (options.profile && !on_cpu) {
    throw Unsupported("[ShardGroup] profiles are supported only on the CPU",
                      "move the network to the CPU");
  }
  all.shards.size =
      options.shard_size > 0 ? options.shard_size : default_shard_size(network, network.device());
  return all;
}

// Divides sums of gradients into row-major gradients.
class MeanGradients final : public GradientSink {
 public:
  MeanGradients(std::span<const Tensor> gradients, float divisor, const IterationProfile* profile)
      : divisor_(divisor), profile_(profile) {
    for (const Tensor& gradient : gradients) to_.push_back(gradient.data<float>());
  }
  std::span<const float* const> arrays(size_t parameter) const override {
    return {&to_[parameter], 1};
  }
  void use(const ParameterBlock& block, const float* sum, int thread) override {
    auto* to = const_cast<float*>(to_[block.parameter]) + block.first;
    for (int64_t row = 0; row < block.rows; ++row, to += block.stride, sum += block.sum_stride) {
      for (int64_t k = 0; k < block.columns; ++k) to[k] = sum[k] / divisor_;
    }
    ThreadTimer(profile_, thread)(&IterationAccounts::gradients);
  }

 private:
  std::vector<const float*> to_;  // by parameter
  const float divisor_;
  const IterationProfile* const profile_;
};

// Wraps a group that the caller keeps alive.
std::shared_ptr<Group> borrowed(Group& group) {
  return std::shared_ptr<Group>(&group, [](Group*) {});
}

}  // namespace

struct ShardGroup::State {
  State(Network& n, const ShardGroupOptions& options, Group* members)
      : network(n),
        training(training_options(n, options)),
        device(n.device()),
        limit(options.limit),
        pool(options.threads == 0 ? std::min(available_cores(), 1024) : options.threads),
        profile(options.profile ? std::make_unique<detail::ShardGroupProfile>(pool.size())
                                : nullptr),
        program(n,
                {.seed = options.seed,
                 .precision = training.precision.dtype(),
                 .choice = {options.deterministic, options.precision == Precision::tf32},
                 .loss_scale = training.precision.scale_of_losses()},
                profile ? &profile->step : nullptr) {
    const ShardExecutorOptions how{
        .shard_size = training.shards.size,
        // Without determinism a device may choose algorithms that give other bits each time.
        .check_frequency = options.deterministic || device.is_cpu() ? options.check_frequency : 0,
        .deterministic = options.deterministic};
    if (device.is_cpu()) {
      auto threads = std::make_unique<ThreadExecutor>(network, program, pool, how,
                                                      profile ? &profile->step : nullptr);
      host_sum = &threads->sum();
      executor = std::move(threads);
    } else {
      auto streams = std::make_unique<DeviceExecutor>(network, program,
                                                      static_cast<int>(training.streams), how);
      device_executor = streams.get();
      executor = std::move(streams);
    }
    if (members == nullptr) {
      if (options.loads.size() <= 1) return;
      refuse_options("loads has " + counted(options.loads.size(), "entry", "entries") +
                     ", and this process is not a member of a group");
    }
    std::vector<double> loads = options.loads;
    if (loads.empty()) loads.assign(static_cast<size_t>(members->size()), 1);
    if (loads.size() != static_cast<size_t>(members->size())) {
      refuse_options("loads has " + counted(loads.size(), "entry", "entries") +
                     ", but the group has " + counted(members->size(), "member"));
    }
    executor->join(borrowed(*members), loads, limit);
  }

  Network& network;
  const TrainingOptions training;
  const Device device;
  const double limit;
  ThreadPool pool;
  const std::unique_ptr<detail::ShardGroupProfile> profile;
  FunctionProgram program;
  std::unique_ptr<ShardExecutor> executor;
  GradientSum* host_sum = nullptr;            // of an executor on the CPU
  DeviceExecutor* device_executor = nullptr;  // or the executor

  // The states that check_statistics() has looked at. Others follow if the network is initialized
  // again.
  std::vector<uint64_t> checked;

  const IterationProfile* iteration_profile() const { return profile ? &profile->step : nullptr; }
  // Calls body(i, thread) for what is done once for all parameters: by this thread alone if they
  // are so few that other threads would hardly be awake before the end.
  void for_each(int64_t n, const std::function<void(int64_t i, int thread)>& body);
  void check_statistics();
  void compare_calls(int64_t rows, int64_t iteration);
  void refresh_copies();
  std::vector<Tensor> mean_gradients(double observations);
  std::vector<Tensor> mean_gradients_on_device(double observations);
  void follow_statistics();
};

void ShardGroup::State::for_each(int64_t n,
                                 const std::function<void(int64_t i, int thread)>& body) {
  constexpr size_t few = size_t{64} << 10;
  if (program.gradient_layout().bytes > few) return pool.for_each(n, body);
  for (int64_t i = 0; i < n; ++i) body(i, 0);
}

void ShardGroup::State::check_statistics() {
  std::vector<uint64_t> present;
  for (const auto& s : network.state()) present.push_back(s.value.id());
  if (present == checked) return;
  require_input_statistics(network);
  checked = std::move(present);
}

// Finds members that call with different arguments before anything is added.
void ShardGroup::State::compare_calls(int64_t rows, int64_t iteration) {
  Group& members = executor->group();
  if (members.size() == 1) return;
  const std::vector<uint64_t> call{static_cast<uint64_t>(rows), static_cast<uint64_t>(iteration),
                                   static_cast<uint64_t>(training.shards.size),
                                   program.random_seed(), program.gradient_layout().bytes};
  const Bytes own = encode(call);
  const auto all = members.gather_each(own, TimeLimit(limit));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] == own) continue;
    const auto theirs = decode<std::vector<uint64_t>>(all[r]);
    throw InvalidArgument("[sharded_value_and_gradient] member " + std::to_string(r) +
                              " of the group calls for iteration " + std::to_string(theirs.at(1)) +
                              " with " + counted(theirs.at(0), "observation") +
                              ", but this one for iteration " + std::to_string(iteration) +
                              " with " + std::to_string(rows) +
                              ", or the networks or options differ",
                          "all members must use the same mini-batches, options and networks");
  }
}

// Updates copies of values that have changed since the last call. Unchanged copies must not be
// written, because a loss may call forward() of this network in other threads.
void ShardGroup::State::refresh_copies() {
  PackedParameters& packed = network.packed();
  if (!device.is_cpu()) return packed.pack_all();
  for_each(packed.count(), [&](int64_t i, int thread) {
    const ThreadTimer charge(iteration_profile(), thread);
    charge(&IterationAccounts::waiting);
    packed.refresh(static_cast<int>(i));
    charge(&IterationAccounts::plans);
  });
}

std::vector<Tensor> ShardGroup::State::mean_gradients_on_device(double observations) {
  DeviceMemory& memory = memory_of(device);
  memory.activate();
  const auto divisor = static_cast<float>(observations);
  std::vector<Tensor> gradients;
  for (const auto& entry : program.gradient_layout().entries) {
    const Tensor sum =
        Tensor::view(device_executor->gradient_sum() + entry.offset, entry.spec, nullptr, device);
    const Tensor plain = entry.spec.row_major() ? sum.clone() : convert(sum, entry.spec.plain());
    kernels::functions_for(device).divide(static_cast<float*>(plain.raw()),
                                          static_cast<size_t>(plain.shape().elements()), divisor,
                                          memory.default_stream());
    gradients.push_back(
        reshaped_unrecorded(plain, network.parameters()[gradients.size()].value.shape()));
  }
  return gradients;
}

std::vector<Tensor> ShardGroup::State::mean_gradients(double observations) {
  if (!device.is_cpu()) return mean_gradients_on_device(observations);
  std::vector<Tensor> gradients;
  for (const auto& p : network.parameters()) {
    gradients.emplace_back(p.value.shape(), DType::f32);
  }
  MeanGradients sink(gradients, static_cast<float>(observations), iteration_profile());
  // Parameters that the loss does not depend on may have no update range.
  std::vector<bool> summed(gradients.size(), false);
  for (const ParameterPart& part : host_sum->ranges(sink)->parts) summed[part.parameter] = true;
  for (size_t p = 0; p < gradients.size(); ++p) {
    if (!summed[p]) std::memset(gradients[p].data<float>(), 0, gradients[p].bytes());
  }
  host_sum->run(sink);
  return gradients;
}

void ShardGroup::State::follow_statistics() {
  std::vector<Tensor> host;  // by state; a device's states are changed on the host
  for (const auto& s : network.state()) host.push_back(s.value.to({}));
  program.follow_statistics([&](int k) { return host[static_cast<size_t>(k)].data<float>(); });
  if (device.is_cpu()) return;
  for (size_t k = 0; k < host.size(); ++k) network.state()[k].value.copy_from(host[k]);
}

ShardGroup::ShardGroup(Network& network, const ShardGroupOptions& options)
    : state_(std::make_unique<State>(network, options, nullptr)) {}

ShardGroup::ShardGroup(Network& network, const ShardGroupOptions& options, Group& members)
    : state_(std::make_unique<State>(network, options, &members)) {}

ShardGroup::~ShardGroup() = default;
Network& ShardGroup::network() const { return state_->network; }
ThreadPool& ShardGroup::pool() const { return state_->pool; }
const std::vector<int64_t>& ShardGroup::shards_by_thread() const {
  return state_->executor->shards_by_worker();
}

void ShardGroup::work_meanwhile(std::function<bool(bool ahead)> work) {
  state_->executor->work_meanwhile(std::move(work));
}

void ShardGroup::end_iteration() {
  if (state_->profile) state_->profile->end_iteration();
}

std::optional<Profile> ShardGroup::profile() {
  State& s = *state_;
  if (!s.profile) return std::nullopt;
  s.profile->end_iteration();
  PassFloors floors;
  s.program.time_passes(s.pool, floors);
  floors.set(s.profile->profiler);
  Profile profile = s.profile->profiler.finish(0);
  if (profile.iterations == 0) return std::nullopt;
  return profile;
}

ValueAndGradients sharded_value_and_gradient(const ShardLoss& loss,
                                             const std::vector<Tensor>& batch, ShardGroup& group,
                                             int64_t iteration) {
  const ArithmeticMode mode;
  ShardGroup::State& g = *group.state_;
  if (iteration < 1) {
    throw InvalidArgument("[sharded_value_and_gradient] iterations count from 1, received " +
                          std::to_string(iteration));
  }
  if (g.network.device() != g.device) {
    throw InvalidArgument("[sharded_value_and_gradient] the network is on " +
                              to_string(g.network.device()) + ", but the group was made on " +
                              to_string(g.device),
                          "make a ShardGroup after network.to()");
  }
  g.check_statistics();
  g.program.set_batch(batch, loss);
  const int64_t rows = g.program.rows();
  if (g.profile) g.profile->begin_call();
  g.executor->prepare(rows);
  g.refresh_copies();
  g.compare_calls(rows, iteration);
  g.executor->begin(rows, iteration);
  const ShardIteration& it = g.executor->finish();
  const ThreadTimer lead(g.iteration_profile(), 0);
  lead(&IterationAccounts::sums);

  g.program.check_finite(iteration);
  std::vector<double> losses;
  for (const FunctionSummary& summary : g.program.summaries()) losses.push_back(summary.loss);
  // A loss across observations is not divided.
  const double observations =
      g.program.summaries()[0].has_one_value ? 1 : static_cast<double>(it.observations());
  g.follow_statistics();
  lead(&IterationAccounts::statistics);
  std::vector<Tensor> gradients =
      g.mean_gradients(observations * g.training.precision.scale_of_losses());
  lead(&IterationAccounts::gradients);
  if (g.profile) g.profile->complete_call();
  return {tree_sum(losses) / observations, std::move(gradients)};
}

}  // namespace lockstep
