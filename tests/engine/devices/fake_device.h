// A device for tests: the CPU's kernels behind a GPU's name, asynchronous and with inaccessible
// memory like a GPU. Only work of the device can access its memory, so a stray access of the host
// ends the test. Work on a stream runs only when a thread waits for it. Recordings are made and
// repeated. Kernels read RandomContext only from the device's memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/device/device_group.h"
#include "lockstep/engine/device/device_memory.h"

namespace lockstep::devicetest {

class FakeMemory;

}  // namespace lockstep::devicetest

namespace lockstep::kernels {
struct Table;
}

namespace lockstep::devicetest {

struct FakeOptions {
  size_t bytes = size_t{256} << 20;
  // The protection is changed whenever the host waits, which takes time for each page. Where many
  // processes have such devices, large pages take much memory, and long to come.
  bool large_pages = false;
  bool records = true;
  bool recordings_fail = false;  // as if some work could not be recorded
  // false: work is counted and not done. Values are then unspecified, and results that the host
  // reads are zero.
  bool computes = true;
  // The kernels behind the device, which run in host memory; null: the CPU's. The last device's
  // kernels serve all devices.
  const kernels::Table* kernels = nullptr;
  // For groups: a name that no other device has; "": the device joins no group.
  std::string identity = {};
  // Called when an exchange of a group is under way here, with its number from 1. An exception is a
  // failure of the group's connections.
  std::function<void(int64_t)> on_exchange = {};
  // Whether messages of a group are lost from this exchange on.
  std::function<bool(int64_t)> loses = {};
  // Called when a "key" is made and before each "join". An exception makes it fail.
  std::function<void(const std::string&)> on_join = {};
};

// The maker of groups for such a device; null: it has no identity.
std::shared_ptr<DeviceGroups> make_fake_groups(const FakeOptions& options);
// Adds work to a stream. It begins when it is ready.
void add_to(void* stream, std::function<void()> task, std::function<bool()> ready);
// Runs work that is ready. Returns whether no work is left.
bool run_ready(void* stream);

// What the host has requested from a device.
struct DeviceCounts {
  int64_t kernels = 0;     // launched one by one
  int64_t recordings = 0;  // launched
  // Copies to the device, to the host and within the device, added one by one.
  int64_t to_device = 0, to_host = 0, within = 0;
  // In the recordings that were launched.
  int64_t recorded_kernels = 0, recorded_copies = 0;
  int64_t waits = 0;   // of the host, for work that was not done
  int64_t drains = 0;  // those of them after which a stream had nothing more to do

  DeviceCounts operator-(const DeviceCounts& other) const;
  bool operator==(const DeviceCounts&) const = default;
  std::string to_string() const;
};

// The device exists during the object's lifetime. Its tensors must be destroyed first.
class FakeDevice {
 public:
  explicit FakeDevice(int index = 0, const FakeOptions& options = {});
  ~FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  Device device() const { return device_; }
  operator Device() const { return device_; }
  const kernels::Table& table() const;
  DeviceMemory& memory() const;

  int recordings() const;
  int replays() const;
  DeviceCounts counts() const;
  int marks() const;  // set in the default stream
  // Bytes that are allocated and not released. The cache counts as allocated.
  size_t used() const;
  // Misuse that would fail on a real device: releasing a stream with work, and waiting or
  // allocating during a recording.
  std::vector<std::string> misuse() const;

 private:
  Device device_;
  std::shared_ptr<FakeMemory> memory_;
};

}  // namespace lockstep::devicetest
