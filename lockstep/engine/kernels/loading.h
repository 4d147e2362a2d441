// The back ends of devices other than the CPU, and the tables of kernels that they provide. A GPU's
// kernels are used if they have passed its self-test (self_test/self_test.h): its verdict is read
// from the user's folder, else the test runs in a child process at the first use.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/engine/device/devices.h"
#include "lockstep/engine/kernels/backends/backend.h"
#include "lockstep/engine/kernels/backends/verdict_file.h"

namespace lockstep::kernels {

// Makes `table` the kernels of a device; null removes them. For back ends. Memory is registered
// separately (device/device_memory.h).
void register_table(Device device, const Table* table);

// An opened library, or the reason why it cannot be used. The library is never closed, because
// objects that it made may still be in use.
struct BackendLibrary {
  const Backend* backend = nullptr;
  std::string path;
  Reason reason;
};
BackendLibrary open_backend(const std::string& path);

// A device with all its kernels, whatever has been verified: for the self-test. Throws Unsupported,
// with the reason, for a device that cannot be used. "cpu" has the CPU's kernels.
struct UntestedDevice {
  const Table* table = nullptr;
  std::shared_ptr<DeviceMemory> memory;
};
UntestedDevice untested_device(Device device);

// The kernels alone: makes nothing on the device.
const Table& untested_table(Device device);

// What a verdict on this GPU is valid for.
VerdictKey verdict_key(const DeviceInfo& info);
// Tests a GPU and stores the verdict (parallel/process/device_test.h). Without a tester a GPU whose
// verdict is not known cannot be used.
using DeviceTester = Verdict (*)(const DeviceInfo& info);
void set_device_tester(DeviceTester tester);
// Gives the verdicts in place of files and tester, for tests. Null: files and tester again.
void set_verdict_source(Verdict (*source)(const DeviceInfo& info));

// The verdict on a GPU, if it is known: from this process or the user's folder. `note`: receives
// why a file is ignored. Never tests.
std::optional<Verdict> known_verdict(Device device, std::string* note = nullptr);

}  // namespace lockstep::kernels
