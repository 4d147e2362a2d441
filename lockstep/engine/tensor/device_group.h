// Devices of several processes that send to each other without going through their hosts' memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lockstep/base/dtype.h"

namespace lockstep {

// Bytes of the device's memory that go to or come from a member.
struct DeviceTransfer {
  int rank = 0;
  void* data = nullptr;
  size_t bytes = 0;
};

// A member of a group of devices. One thread at a time. Data moves, nothing is added.
class DeviceGroup {
 public:
  // Nothing need be done: what is under way ends, wherever the others are.
  virtual ~DeviceGroup() = default;

  // Adds one exchange to a queue. What one member sends to another arrives in the order in which
  // both name it, in equal sizes; nothing is empty. Memory must stay until all is done.
  virtual void exchange(std::span<const DeviceTransfer> sends,
                        std::span<const DeviceTransfer> receives, void* queue) = 0;
  // What has become of the last exchange, before the first of the group. Pending: nothing may be
  // added to the queue; queued: its turn comes; done: so is all that was added to the queue. Throws
  // Error where a member or a way to it has failed.
  enum class Progress { pending, queued, done };
  virtual Progress progress(void* queue) = 0;
  // Ends what is under way, here. The group is of no more use.
  virtual void abort() noexcept = 0;
};

// Makes groups for one device. Thread-safe.
class DeviceGroups {
 public:
  virtual ~DeviceGroups() = default;

  // The piece of hardware, by a name that no other has anywhere: two members cannot share one.
  virtual std::string identity() = 0;
  // By which the members of a new group find each other: made by one of them, told to all.
  virtual std::string make_key() = 0;
  // All call it. The group is pending until all have. Throws Error where it cannot begin.
  virtual std::unique_ptr<DeviceGroup> join(const std::string& key, int rank, int size) = 0;
};

// Makes known who makes groups for a device, or removes it (null). For back ends.
void register_device_groups(Device device, std::shared_ptr<DeviceGroups> groups);
// Null: nobody.
std::shared_ptr<DeviceGroups> device_groups_of(Device device);

}  // namespace lockstep
