// The way from device to device that the members of a group have where each has one of its own.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/base/time_limit.h"
#include "lockstep/engine/tensor/device_group.h"
#include "lockstep/engine/tensor/device_memory.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep {

// Of a process whose links will only be within the network of this address ("": within this
// machine), as groups of hosts are: what they carry is not encrypted. Before its first one; the
// variables of NCCL come first. Throws Error where this machine does not have the address.
void keep_links_within(const std::string& address);

// One thread at a time, with the device active. What fails throws as collectives do, and WorkerLost
// where a device or a way to one has.
class DeviceLinks {
 public:
  // All members of the group, which must outlive it, call this. Null, the same for all, where there
  // is no such way; `why` says why not then ("workers share a GPU"). Devices have `patience`
  // seconds to find each other, of the group's `limit`.
  static std::unique_ptr<DeviceLinks> between(Group& group, Device device, double patience,
                                              const TimeLimit& limit, std::string& why);

  int rank() const { return members_.rank(); }
  int size() const { return members_.size(); }
  // See DeviceGroup::exchange(); in the device's default queue. Returns when other work can be
  // added to that.
  void exchange(std::span<const DeviceTransfer> sends, std::span<const DeviceTransfer> receives,
                const TimeLimit& limit);
  // Returns when all that was added to the queue is done.
  void finish(const TimeLimit& limit);

 private:
  DeviceLinks(Group& members, DeviceMemory& memory, std::unique_ptr<DeviceGroup> group)
      : members_(members), memory_(memory), group_(std::move(group)) {}
  void wait(DeviceGroup::Progress wanted, const TimeLimit& limit);
  template <class F>
  void guarded(F&& body);

  Group& members_;
  DeviceMemory& memory_;
  std::unique_ptr<DeviceGroup> group_;
};

}  // namespace lockstep
