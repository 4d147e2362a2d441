// The fixed tree over shards' gradients that lie on a device, alone or over the members of a group.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/engine/kernels/table.h"
#include "lockstep/engine/tensor/allocator.h"
#include "lockstep/engine/tensor/device_memory.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/comm/sum_exchange.h"
#include "lockstep/parallel/comm/tree.h"
#include "lockstep/train/device_links.h"
#include "lockstep/train/pinned.h"

namespace lockstep {

// The device adds, in its default queue. One thread at a time, with the device active.
class DeviceSum {
 public:
  // Arrays of so many bytes (of floats).
  DeviceSum(Device device, size_t bytes, size_t most_leaves);

  // Of a leaf, to be written. Memory is taken when it is first asked for, and stays.
  void* leaf(size_t j);
  // Gives the memory of all leaves but the first back. Nothing may be under way.
  void forget_leaves();
  // The sum of all leaves, whose place stays the same.
  std::byte* result() { return static_cast<std::byte*>(leaf(0)); }

  // When the leaves of `own` are written: adds what lies within that run.
  void add_own(size_t leaves, const LeafRun& own);
  // Then, over several members: the sum of all, whose runs are `dealt`. Throws as collectives do.
  // Partial sums go through the hosts' memory, so that several may share a device; every member
  // gets all of them and finishes the tree.
  void exchange(Group& group, size_t leaves, std::span<const LeafRun> dealt,
                const TimeLimit& limit);
  // The same from device to device: every member gets its slice (slice_of()) of all partial sums,
  // finishes the tree for that, and gets the others' slices.
  void exchange(DeviceLinks& links, size_t leaves, std::span<const LeafRun> dealt,
                const TimeLimit& limit);

 private:
  void add(size_t first, size_t count);
  void add_over_members(size_t first, size_t count, std::span<const LeafRun> dealt,
                        const Slice& slice);
  void add_pair(size_t left, size_t right, const Slice& slice);
  Slice whole() const { return {0, bytes_ / sizeof(float)}; }
  DeviceTransfer transfer(int64_t leaf, int rank, const Slice& slice);

  const Device device_;
  DeviceMemory& memory_;
  const kernels::Table& table_;
  const size_t bytes_;
  // By leaf: its values, then the sums of the tree's left ends. Of others' leaves only the first
  // ones of partial sums.
  std::vector<Memory> leaves_;
  std::unique_ptr<Pinned> partials_;
  size_t room_ = 0;  // bytes of it
};

}  // namespace lockstep
