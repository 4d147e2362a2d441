// Groups of devices of several processes that exchange data without a copy through host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep {

// Bytes of device memory to send to, or receive from, the member `rank`.
struct DeviceTransfer {
  int rank = 0;
  void* data = nullptr;
  size_t bytes = 0;
};

// A member of a group of devices. Moves data without any arithmetic. Not thread-safe.
class DeviceGroup {
 public:
  // May be called at any time: aborts an exchange in progress, whatever the other members do.
  virtual ~DeviceGroup() = default;

  // Adds one exchange to a stream. Transfers from one member to another are matched in the order in
  // which both members list them. Their sizes must be equal and not 0. The memory must stay valid
  // until progress() returns `done`.
  virtual void exchange(std::span<const DeviceTransfer> sends,
                        std::span<const DeviceTransfer> receives, void* stream) = 0;
  // State of the last exchange, or of the group's formation before the first exchange. pending:
  // nothing may be added to the stream yet. queued: the exchange is in the stream but not complete.
  // done: everything that was added to the stream is complete. Throws Error if a member or a
  // connection has failed.
  enum class Progress { pending, queued, done };
  virtual Progress progress(void* stream) = 0;
  // Ends this member's exchange in progress. The group cannot be used afterwards.
  virtual void abort() noexcept = 0;
};

// Makes groups for one device. Thread-safe.
class DeviceGroups {
 public:
  virtual ~DeviceGroups() = default;

  // A globally unique name of the hardware: two members of a group cannot share a device.
  virtual std::string identity() = 0;
  // Makes the key by which the members of a new group find each other. One member makes it and
  // sends it to all others.
  virtual std::string make_key() = 0;
  // Every member calls join(). The group is pending until all have. Throws Error if it cannot
  // begin.
  virtual std::unique_ptr<DeviceGroup> join(const std::string& key, int rank, int size) = 0;
};

// Registers the maker of groups for a device; null removes it. For back ends.
void register_device_groups(Device device, std::shared_ptr<DeviceGroups> groups);
// Null where none is registered.
std::shared_ptr<DeviceGroups> device_groups_of(Device device);

}  // namespace lockstep
