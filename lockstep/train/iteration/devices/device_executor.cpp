#include "lockstep/train/iteration/devices/device_executor.h"

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
                               const ShardExecutorOptions& options,
                               std::shared_ptr<DeviceIteration> iteration)
    : ShardExecutor(network, program, options),
      device_(network.device()),
      memory_(memory_of(device_)),
      streams_(streams),
      iteration_(std::move(iteration)) {
  for (size_t i = 0; i < kSlots; ++i) slots_.emplace_back(memory_);
  shards_by_worker_.assign(static_cast<size_t>(streams), 0);
}

DeviceExecutor::~DeviceExecutor() {
  try {
    abandon();
  } catch (const std::exception&) {
    // If a device fails here, an earlier call has already reported the failure.
  }
}

// Sums travel by messages or from device to device, never through windows.
GroupSumOptions DeviceExecutor::sum_options() const { return {.most_leaves = most_shards()}; }

void DeviceExecutor::make_sum() {
  memory_.activate();
  if (iteration_) iteration_->forget();
  sum_.emplace(device_, program().gradient_layout().bytes, static_cast<size_t>(most_shards()));
  for (Checked& checked : checked_) checked.gradients.reset();
}

void DeviceExecutor::joined() {
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
  if (iteration_ && iteration_->whole()) iteration_->launch();
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
  const auto index = static_cast<size_t>(shard - it.own.first);
  const auto streams =
      static_cast<size_t>(std::min<int64_t>({streams_, program().most_workers(), most_shards()}));
  const size_t stream = (repeat > 0 ? static_cast<size_t>(repeat) : index) % streams;
  ShardTask task{.iteration = it.number,
                 .shard = shard,
                 .rows = it.shards[static_cast<size_t>(shard)],
                 .worker = static_cast<int>(stream),
                 .repeat = repeat};
  if (repeat > 0) {
    Checked& checked = checked_[repeat];
    checked.summary.resize(program().summary_bytes());
    task.summary = checked.summary.data();
  } else {
    task.summary = slot.summaries.data() + static_cast<size_t>(shard) * program().summary_bytes();
  }
  if (iteration_) {
    const int64_t last = it.own.count + repeat - 1;
    iteration_->set_area(task, repeat > 0 ? static_cast<size_t>(last) : index);
  }
  note(task.worker, shard);
  const ShardGradients gradients = program().compute(task);
  if (it.check && it.check->shard == shard) keep_for_check(task, gradients);
  if (repeat > 0) return;
  slot.tasks.push_back(task);
  const auto add_leaf = [this, gradients, leaf = sum_->leaf(static_cast<size_t>(shard))] {
    memory_.copy(leaf, gradients.data, program().gradient_layout().bytes, gradients.stream);
  };
  if (iteration_) {
    iteration_->add(add_leaf);
  } else {
    add_leaf();
  }
  if (std::find(used_streams_.begin(), used_streams_.end(), gradients.stream) ==
      used_streams_.end()) {
    used_streams_.push_back(gradients.stream);
  }
  ++shards_by_worker_[stream];
}

// An iteration that runs ahead is whole: the host has no part in it.
void DeviceExecutor::begin_whole_or_not(const ShardIteration& it) {
  used_streams_.clear();
  if (!iteration_) return;
  bool alone = false;
  for (int64_t j = it.own.first; j < it.own.end(); ++j) alone = alone || is_alone(it.number, j);
  const bool whole = runs_ahead(it.number) && !alone && iteration_->can_be_whole(it.observations());
  int64_t rows = 0;
  for (const IndexRange& shard : it.shards) rows = std::max(rows, shard.count);
  iteration_->begin(whole, it.observations(), it.slot,
                    static_cast<size_t>(it.own.count + it.repeats), program().staging(rows));
}

void DeviceExecutor::add(ShardIteration& it) {
  Slot& slot = slots_[it.slot];
  memory_.activate();
  slot.tasks.clear();
  slot.marked = false;
  slot.begun = std::chrono::steady_clock::now();
  slot.summaries.resize(it.shards.size() * program().summary_bytes());
  for (Checked& checked : checked_) checked.used = false;
  begin_whole_or_not(it);
  sum_->prepare(it.own);
  for (int64_t j = it.own.first; j < it.own.end(); ++j) {
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
  add_sum(it);
}

const std::vector<IndexRange>& DeviceExecutor::own_subtrees(const ShardIteration& it) const {
  return it.schedule->subtrees[static_cast<size_t>(group().rank())];
}

void DeviceExecutor::add_sum(const ShardIteration& it) {
  memory_.activate();
  if (!iteration_ || !iteration_->whole()) {
    program().join();
    memory_.activate();
    sum_->add_own(own_subtrees(it), memory_.default_stream());
    return;
  }
  iteration_->add([this, own = own_subtrees(it)] {
    void* const stream = iteration_->stream();
    for (void* const used : used_streams_) memory_.follow(stream, used);
    sum_->add_own(own, stream);
  });
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
  if (iteration_) iteration_->drop();
  program().wait();
  memory_.activate();
  // If a launch has failed, the default stream does not follow the iteration's streams.
  if (iteration_) iteration_->wait();
  memory_.synchronize(memory_.default_stream());
}

void DeviceExecutor::exchange(ShardIteration& it, const TimeLimit& limit) {
  if (it.check) gather_digests(it, limit);
  if (group().size() == 1) return;
  gather_summaries(it, limit);
  memory_.activate();
  if (links_) {
    sum_->exchange(*links_, *it.schedule, limit);
  } else {
    sum_->exchange(group(), *it.schedule, limit);
  }
}

void DeviceExecutor::gather_summaries(ShardIteration& it, const TimeLimit& limit) {
  const size_t bytes = program().summary_bytes();
  if (bytes == 0) return;
  std::vector<size_t> sizes;
  for (const IndexRange& run : it.schedule->ranges) {
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
