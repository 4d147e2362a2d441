// The way from device to device that the members of a group have where each has one of its own.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "lockstep/base/time_limit.h"
#include "lockstep/engine/tensor/device_group.h"
#include "lockstep/engine/tensor/device_memory.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep {

// While alive, devices that come together do so within the network of this address ("": within
// this machine), as groups of hosts do: what links carry is not encrypted. NCCL knows this by the
// variable NCCL_SOCKET_IFNAME alone, which it reads when it first joins; where it is set already it
// stays as it is, else it is unset again in the end. One at a time in a process, others wait: but
// the environment is the whole process's, so what other threads start meanwhile inherits it.
class LinksWithin {
 public:
  // Throws Error where this machine does not have the address.
  explicit LinksWithin(const std::string& address);
  ~LinksWithin();
  LinksWithin(const LinksWithin&) = delete;
  LinksWithin& operator=(const LinksWithin&) = delete;

 private:
  std::unique_lock<std::mutex> alone_;
  bool set_ = false;
};

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
