// The fixed tree over shard gradients on a device, alone or over the members of a group.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/reduce/schedule.h"
#include "lockstep/parallel/reduce/sum_exchange.h"
#include "lockstep/train/iteration/devices/device_links.h"

namespace lockstep {

// The device computes the additions, in its default stream unless noted otherwise. One thread at a
// time, with the device active.
class DeviceSum {
 public:
  // Each leaf is an array of floats of `bytes` bytes.
  DeviceSum(Device device, size_t bytes, size_t most_leaves);

  // The memory of a leaf, to be written. It is allocated on the first call and kept.
  void* leaf(size_t j);
  // Frees the memory of all leaves but the first. No work may be under way.
  void forget_leaves();
  // The sum of all leaves. Its address stays the same.
  std::byte* result() { return static_cast<std::byte*>(leaf(0)); }

  // Makes the memory of these leaves, and sends the list of all leaves to the device by its default
  // stream.
  void prepare(const IndexRange& own);
  // Call it when the leaves of these subtrees are written. Adds up each, by one kernel. The stream
  // comes after the default stream's work up to prepare().
  void add_own(std::span<const IndexRange> subtrees, void* stream);
  // Then, over several members: computes the sum over all members. Throws what collectives throw.
  // Partial sums go through host memory, so several members may share a device. Every member gets
  // all partial sums and finishes the tree.
  void exchange(Group& group, const SumSchedule& schedule, const TimeLimit& limit);
  // Same, from device to device: every member gets its slice (slice_of()) of all partial sums,
  // finishes the tree for the slice, and gets the other members' slices.
  void exchange(DeviceLinks& links, const SumSchedule& schedule, const TimeLimit& limit);

 private:
  void add_over_members(const SumSchedule& schedule, const IndexRange& slice);
  void add_pair(size_t left, size_t right, const IndexRange& slice);
  IndexRange all_elements() const { return {0, static_cast<int64_t>(bytes_ / sizeof(float))}; }
  DeviceTransfer transfer(int64_t leaf, int rank, const IndexRange& slice);

  const Device device_;
  DeviceMemory& memory_;
  const kernels::Functions& functions_;
  const size_t bytes_;
  // By leaf: its values, then the sums of subtrees that begin with it. Of other members' leaves,
  // only those that begin partial sums.
  std::vector<Memory> leaves_;
  Memory addresses_;  // of all leaves, on the device
  bool listed_ = false;
  std::unique_ptr<Pinned> partials_;
  size_t room_ = 0;  // bytes of partials_
};

}  // namespace lockstep
