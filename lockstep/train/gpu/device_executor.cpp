#include "lockstep/train/gpu/device_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"

namespace lockstep {
namespace {

// Seconds that the devices of a group have to connect. After that they exchange through the hosts.
constexpr double kLinkPatience = 60;

}  // namespace

DeviceExecutor::DeviceExecutor(const Network& network, ShardProgram& program, int streams,
                               int64_t most_rows, const ShardExecutorOptions& options)
    : ShardExecutor(network, program, options),
      device_(network.device()),
      memory_(memory_of(device_)),
      streams_(streams),
      most_rows_(most_rows) {
  for (size_t i = 0; i < kSlots; ++i) slots_.emplace_back(memory_);
  shards_by_worker_.assign(static_cast<size_t>(streams), 0);
}

DeviceExecutor::~DeviceExecutor() {
  try {
    abandon();
  } catch (const Error&) {
    // If a device fails here, an earlier call has already reported the failure.
  }
}

// Sums travel by messages or from device to device, never through windows.
GroupSumOptions DeviceExecutor::sum_options() const { return {.most_leaves = most_shards()}; }

void DeviceExecutor::make_sum() {
  memory_.activate();
  sum_.emplace(device_, program().gradient_layout().bytes, static_cast<size_t>(most_shards()));
  for (Checked& checked : checked_) checked.gradients.reset();
}

void DeviceExecutor::joined() {
  // Another partition needs other memory sizes.
  for (Slot& slot : slots_) slot.staging.clear();
  for (Checked& checked : checked_) checked = {};
  link();
}

void DeviceExecutor::link() {
  route_.clear();
  if (group().size() == 1) return;
  std::string why;
  links_ = DeviceLinks::between(group(), device_, std::min(limit() / 5, kLinkPatience),
                                TimeLimit(limit()), why);
  route_ = links_ ? "from GPU to GPU" : "through the hosts' memory: " + why;
}

bool DeviceExecutor::runs_ahead(int64_t number) const {
  const bool checked = check_frequency() > 0 && number % check_frequency() == 0;
  return group().size() == 1 && !checked && program().runs_ahead();
}

void DeviceExecutor::mark(ShardIteration& it) {
  slots_[it.slot].done.set(memory_.default_stream());
  slots_[it.slot].marked = true;
}

const std::byte* DeviceExecutor::summary(const ShardIteration& it, int64_t shard) const {
  const size_t bytes = program().summary_bytes();
  return bytes > 0 ? slots_[it.slot].summaries.data() + static_cast<size_t>(shard) * bytes
                   : nullptr;
}

void DeviceExecutor::note_none() const {
  for (int k = 0; k < streams_; ++k) note(k, -1);
}

void DeviceExecutor::keep_for_check(const ShardTask& task, const ShardGradients& gradients) {
  const size_t bytes = program().gradient_layout().bytes;
  Checked& checked = checked_[task.repeat];
  checked.task = task;
  checked.used = true;
  if (!checked.gradients) checked.gradients = std::make_unique<Pinned>(memory_, bytes);
  std::byte* const kept = checked.gradients->data();
  memory_.copy_to_host(kept, gradients.data, bytes, gradients.stream);
  if (!corruption_is_set()) return;
  memory_.synchronize(gradients.stream);
  corruption_point("gradients", task.iteration, task.shard, kept, bytes);
  memory_.copy_from_host(gradients.data, kept, bytes, gradients.stream);
}

void DeviceExecutor::add_shard(ShardIteration& it, int64_t shard, int repeat) {
  Slot& slot = slots_[it.slot];
  const auto place = static_cast<size_t>(shard - it.own.first);
  const auto streams =
      static_cast<size_t>(std::min<int64_t>({streams_, program().most_workers(), most_shards()}));
  const size_t stream = (repeat > 0 ? static_cast<size_t>(repeat) : place) % streams;
  ShardTask task{.iteration = it.number,
                 .shard = shard,
                 .rows = it.shards[static_cast<size_t>(shard)],
                 .worker = static_cast<int>(stream),
                 .repeat = repeat};
  const size_t staging = program().staging_bytes(most_rows_);
  if (repeat > 0) {
    Checked& checked = checked_[repeat];
    checked.summary.resize(program().summary_bytes());
    if (staging > 0 && !checked.staging) {
      checked.staging = std::make_unique<Pinned>(memory_, staging);
    }
    task.summary = checked.summary.data();
    task.staging = checked.staging ? checked.staging->data() : nullptr;
  } else {
    task.summary = slot.summaries.data() + static_cast<size_t>(shard) * program().summary_bytes();
    // A smaller mini-batch may have larger shards, so the memory fits the largest possible shard.
    if (staging > 0 && place == slot.staging.size()) slot.staging.emplace_back(memory_, staging);
    task.staging = staging > 0 ? slot.staging[place].data() : nullptr;
  }
  note(task.worker, shard);
  const ShardGradients gradients = program().compute(task);
  if (it.check && it.check->shard == shard) keep_for_check(task, gradients);
  if (repeat > 0) return;
  slot.tasks.push_back(task);
  memory_.copy(sum_->leaf(static_cast<size_t>(shard)), gradients.data,
               program().gradient_layout().bytes, gradients.stream);
  ++shards_by_worker_[stream];
}

void DeviceExecutor::add(ShardIteration& it) {
  Slot& slot = slots_[it.slot];
  memory_.activate();
  slot.tasks.clear();
  slot.marked = false;
  slot.begun = std::chrono::steady_clock::now();
  slot.summaries.resize(it.shards.size() * program().summary_bytes());
  for (Checked& checked : checked_) checked.used = false;
  for (int64_t j = it.own.first; j < it.own.end(); ++j) {
    sum_->leaf(static_cast<size_t>(j));
    if (!is_alone(it.number, j)) add_shard(it, j, 0);
  }
  for (int repeat = 1; repeat <= it.repeats; ++repeat) add_shard(it, it.check->shard, repeat);
  // The device now has all shards and computes them in an unknown order.
  note_none();
  for (int64_t j = it.own.first; j < it.own.end(); ++j) {
    if (!is_alone(it.number, j)) continue;
    program().wait();
    add_shard(it, j, 0);
    program().wait();
    note_none();
  }
  program().join();
  memory_.activate();
  sum_->add_own(it.shards.size(), it.own);
}

void DeviceExecutor::wait(ShardIteration& it) {
  Slot& slot = slots_[it.slot];
  if (slot.marked) {
    slot.done.wait();
  } else {
    program().wait();
  }
  if (!slot.tasks.empty()) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - slot.begun;
    shard_seconds_ = taken.count() / static_cast<double>(slot.tasks.size());
  }
  for (const ShardTask& task : slot.tasks) program().complete(task);
  for (int repeat = 1; repeat <= it.repeats; ++repeat) program().complete(checked_[repeat].task);
}

void DeviceExecutor::wait_for_all() {
  // The device may wait for members that are gone: their links end first.
  links_.reset();
  program().wait();
  memory_.activate();
  memory_.synchronize(memory_.default_stream());
}

void DeviceExecutor::exchange(ShardIteration& it, const TimeLimit& limit) {
  if (it.check) gather_digests(it, limit);
  if (group().size() == 1) return;
  gather_summaries(it, limit);
  memory_.activate();
  if (links_) {
    sum_->exchange(*links_, it.shards.size(), it.partition, limit);
  } else {
    sum_->exchange(group(), it.shards.size(), it.partition, limit);
  }
}

void DeviceExecutor::gather_summaries(ShardIteration& it, const TimeLimit& limit) {
  const size_t bytes = program().summary_bytes();
  if (bytes == 0) return;
  std::vector<size_t> sizes;
  for (const IndexRange& run : it.partition) {
    sizes.push_back(static_cast<size_t>(run.count) * bytes);
  }
  std::vector<std::byte>& all = slots_[it.slot].summaries;
  const auto mine = std::span(all).subspan(static_cast<size_t>(it.own.first) * bytes,
                                           sizes[static_cast<size_t>(group().rank())]);
  group().all_gather(Bytes(mine.begin(), mine.end()), sizes, all, limit);
}

void DeviceExecutor::gather_digests(const ShardIteration& it, const TimeLimit& limit) {
  std::vector<Digest> mine(ShardCheck::kMostResults * digests());
  for (int k = 0; k <= it.repeats; ++k) {
    const Checked& checked = checked_[k];
    if (!checked.used) continue;
    write_digests(checked.task, checked.gradients->data(),
                  mine.data() + static_cast<size_t>(k) * digests());
  }
  const auto size = static_cast<size_t>(group().size());
  digests_.resize(size * mine.size());
  group().all_gather(std::as_bytes(std::span(mine)),
                     std::vector<size_t>(size, mine.size() * sizeof(Digest)),
                     std::as_writable_bytes(std::span(digests_)), limit);
}

const Digest* DeviceExecutor::check_digests(int rank) const {
  return digests_.data() + static_cast<size_t>(rank) * ShardCheck::kMostResults * digests();
}

}  // namespace lockstep
