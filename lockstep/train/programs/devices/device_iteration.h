// What an iteration of a training requests from a device: one block of memory that the host sends,
// one that the device returns, and the work between them, recorded as a whole where possible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/device/recording.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/programs/shard_program.h"

namespace lockstep {

// The parts of an iteration (program, executor, updater) share it and add their work here. An
// iteration is either
// - whole: its work is collected, and launch() adds it, from the second time on as one recording;
//   the host prepares what is sent meanwhile, and may change nothing else that the work reads; or
// - not whole, where the host has to take part: work is added at once.
//
// The blocks have a part of the updater in front, then an area for each shard.
// One thread at a time.
class DeviceIteration {
 public:
  static constexpr size_t kSlots = kIterationSlots;

  // The network must stay alive.
  explicit DeviceIteration(Network& network);
  ~DeviceIteration();
  DeviceIteration(const DeviceIteration&) = delete;
  DeviceIteration& operator=(const DeviceIteration&) = delete;

  // The stream of work that concerns all shards. It is this object's own, because other threads
  // add work to the default stream, which a recording would include.
  void* stream() const { return stream_.get(); }

  // From now on no iteration is whole, because the host takes part in updates, or because the work
  // of iterations over equally many observations differs.
  void never_whole() { possible_ = false; }
  // Whether an iteration over this many observations can be whole: the device records, and has not
  // failed to record it.
  bool can_be_whole(int64_t observations) const;
  // Forgets all recordings, because memory that the work uses moves. No work may be under way.
  void forget();

  // Begins an iteration, whose results belong to a slot: without work, with `areas` shards of
  // these sizes. Whole iterations over equally many observations must add the same work.
  void begin(bool whole, int64_t observations, size_t slot, size_t areas, const ShardStaging& area);
  // Without an executor that calls begin(): no iteration is whole.
  bool whole() const { return whole_; }
  // Sets the memory of an area in a task.
  void set_area(ShardTask& task, size_t area) const;
  // Sets the bytes of the updater's parts, before the first iteration. to_send() is the host's
  // memory of a slot, there() its memory on the device. The device writes to_return(), and
  // returned() has it on the host when the slot's work is done.
  void reserve_for_updater(const ShardStaging& bytes);
  std::byte* to_send(size_t slot) const { return slots_[slot].sent->data(); }
  std::byte* there() const { return sent_.as<std::byte>(); }
  std::byte* to_return() const { return returned_.as<std::byte>(); }
  const std::byte* returned(size_t slot) const { return slots_[slot].returned->data(); }

  // Adds work to streams that it orders by itself. In a whole iteration it uses stream(), and
  // others that follow it first and that it follows at the end.
  void add(std::function<void()> work);
  // Adds work to stream() at once, after the default stream's work so far. The default stream then
  // follows it.
  void add_to_stream(const std::function<void()>& work);
  // Copy the updater's parts to the device and to the host, on stream(), in an iteration that is
  // not whole. Whole ones do so.
  void send_updater_part(size_t slot) const;
  void return_updater_part(size_t slot) const;
  // Adds the work of a whole iteration. The default stream follows it.
  void launch();
  // Drops collected work.
  void drop();
  // Waits for the work of this object's streams, which a launch() that failed may have left.
  void wait() const;

 private:
  struct Block {
    std::unique_ptr<Pinned> sent, returned;
    size_t sent_bytes = 0, returned_bytes = 0;
  };
  // Other sizes of shards may have led to more packed copies of the parameters, which updates make
  // again: observations, and the number of copies.
  using Key = std::pair<int64_t, size_t>;
  Key key_of(int64_t observations) const;
  ShardStaging bytes() const {
    return {updater_.sent + areas_ * area_.sent, updater_.returned + areas_ * area_.returned};
  }
  void make_room(Block& block, const ShardStaging& bytes);
  void send() const;

  Network& network_;
  const Device device_;
  DeviceMemory& memory_;
  DeviceStream stream_;
  // Sends a whole iteration's block while the device still computes the one before.
  DeviceStream sending_;
  bool possible_ = true, whole_ = false;
  size_t slot_ = 0, areas_ = 0;
  ShardStaging updater_, area_;
  std::array<Block, kSlots> slots_;    // memory of the host
  Memory arriving_, sent_, returned_;  // of the device
  Key key_;
  std::map<Key, Recording> recordings_;
  std::vector<std::function<void()>> work_;
};

}  // namespace lockstep
