// Computes shards by the streams of a device (a GPU). The host adds the work to the streams.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/train/iteration/devices/device_links.h"
#include "lockstep/train/iteration/devices/device_sum.h"
#include "lockstep/train/iteration/shard_executor.h"
#include "lockstep/train/programs/devices/device_iteration.h"

namespace lockstep {

// The gradient sum is in the device's memory, and the device computes all additions. In a group,
// partial sums travel from device to device if each member has its own device (device_links.h),
// else through host memory.
class DeviceExecutor final : public ShardExecutor {
 public:
  // `streams`: number of streams that share the shards; it changes only the speed. `iteration`: of
  // a program that sends and returns memory (ShardProgram::staging()), which adds its work there;
  // else null.
  DeviceExecutor(const Network& network, ShardProgram& program, int streams,
                 const ShardExecutorOptions& options,
                 std::shared_ptr<DeviceIteration> iteration = nullptr);
  ~DeviceExecutor() override;

  std::string route() const override { return route_; }
  GroupSumOptions sum_options() const override;
  bool runs_ahead(int64_t number) const override;
  void mark(ShardIteration& it) override;
  // The sum over all shards of the iteration finished last: the summed bytes of the program's
  // gradient_layout(), in the device's memory.
  std::byte* gradient_sum() { return sum_->result(); }
  const std::byte* summary(const ShardIteration& it, int64_t shard) const override;

 private:
  // The host's data of an iteration.
  struct Slot {
    explicit Slot(DeviceMemory& memory) : done(memory) {}
    std::vector<std::byte> summaries;  // of all shards
    std::vector<ShardTask> tasks;      // of this member
    std::chrono::steady_clock::time_point begun;
    DeviceMark done;
    bool marked = false;  // `done` has been set for this iteration
  };
  // A computation of the checked shard.
  struct Checked {
    ShardTask task;
    std::unique_ptr<Pinned> gradients;
    std::vector<std::byte> summary;
    bool used = false;
  };

  void make_sum() override;
  int workers() const override { return streams_; }
  void joined() override;
  void add(ShardIteration& it) override;
  void wait(ShardIteration& it) override;
  void wait_for_all() override;
  void exchange(ShardIteration& it, const TimeLimit& limit) override;
  const Digest* check_digests(int rank) const override;

  void begin_whole_or_not(const ShardIteration& it);
  void add_shard(ShardIteration& it, int64_t shard, int repeat);
  const std::vector<IndexRange>& own_subtrees(const ShardIteration& it) const;
  void add_sum(const ShardIteration& it);
  void keep_for_check(const ShardTask& task, const ShardGradients& gradients);
  void note_none() const;
  void link();
  void gather_summaries(ShardIteration& it, const TimeLimit& limit);
  void gather_digests(const ShardIteration& it, const TimeLimit& limit);

  const Device device_;
  DeviceMemory& memory_;
  const int streams_;
  const std::shared_ptr<DeviceIteration> iteration_;
  std::vector<void*> used_streams_;  // by the shards of a whole iteration
  std::optional<DeviceSum> sum_;
  std::deque<Slot> slots_;
  Checked checked_[ShardCheck::kMostResults];  // as the owner, then each repetition
  std::vector<Digest> digests_;                // of all members, after the exchange for a check
  std::unique_ptr<DeviceLinks> links_;         // to the other members; null: through the hosts
  std::string route_;
};

}  // namespace lockstep
