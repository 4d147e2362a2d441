// Direct links between the devices of a group's members, if each member has its own device.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/engine/device/device_group.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep {

// While alive, devices connect within the network of this address ("": within this machine), as
// groups of hosts do, because the links are not encrypted. NCCL can only be told this by the
// variable NCCL_SOCKET_IFNAME, which it reads when it first connects. If the variable is already
// set it is left unchanged; otherwise it is unset at the end. One object at a time in a process;
// other threads wait. Processes that other threads start meanwhile inherit the variable.
class LinksWithin {
 public:
  // Throws Error if this machine does not have the address.
  explicit LinksWithin(const std::string& address);
  ~LinksWithin();
  LinksWithin(const LinksWithin&) = delete;
  LinksWithin& operator=(const LinksWithin&) = delete;

 private:
  const MutexLock alone_;
  bool set_ = false;
};

// One thread at a time, with the device active. Throws what collectives throw, and WorkerLost if a
// device or a link has failed.
class DeviceLinks {
 public:
  // All members of the group call this; the group must outlive the result. Returns null to all
  // members if there are no such links; `why` is then the reason ("workers share a GPU"). Devices
  // have `patience` seconds of the group's `limit` to connect.
  static std::unique_ptr<DeviceLinks> between(Group& group, Device device, double patience,
                                              const TimeLimit& limit, std::string& why);

  int rank() const { return members_.rank(); }
  int size() const { return members_.size(); }
  // See DeviceGroup::exchange(). Uses the device's default stream. Returns when other work can be
  // added to the stream.
  void exchange(std::span<const DeviceTransfer> sends, std::span<const DeviceTransfer> receives,
                const TimeLimit& limit);
  // Returns when all work that was added to the stream is done.
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
