// The self-test of a device in a child process: a fault of a kernel poisons the process that it
// happens in, and a kernel that hangs can only be ended with its process.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/engine/kernels/loading.h"

namespace lockstep {

// Progress of a test, for the user.
struct DeviceTestProgress {
  Device device;
  size_t done = 0, total = 0;  // cases; both 0 at the beginning
  bool ended = false;
};

struct DeviceTestOptions {
  double seconds = 60;   // for everything, the start of the child processes included
  double patience = 20;  // seconds without a finished case after which a child hangs
  std::function<void(const DeviceTestProgress&)> progress = {};
  bool large = true;  // see SelfTestOptions
  std::vector<std::string> only = {};
};

// The first argument of the child process.
inline constexpr const char* device_test_argument = "--lockstep-device-test";
// The child process: tests the device that the arguments name and writes results to descriptor 3.
[[noreturn]] void run_as_device_test(int argc, char** argv);

// Tests a device ("cpu" too) in child processes of this executable, which needs a Runtime. A child
// that crashes or hangs is reported as the failure of the kernel that was being tested, and a new
// child continues with the next kernel. Kernels not reached within the time limit are not tested. A
// device that is absent, busy or out of memory gives a verdict without kernels, with the reason.
// Stores nothing.
kernels::Verdict test_in_child(Device device, const DeviceTestOptions& options);

// Tests a GPU under a lock, once for all processes of the user, and stores the verdict,
// unless a kernel was not tested for lack of room or time. A verdict that another process has
// stored meanwhile is returned instead, unless `again`.
kernels::Verdict test_and_store(const kernels::DeviceInfo& info, bool again,
                                const DeviceTestOptions& options);

// For Runtime: GPUs that this process uses are tested at the first use from now on.
void test_devices_at_first_use();
// Is called during such tests. Empty: none. Set it before devices are used.
void show_device_tests(std::function<void(const DeviceTestProgress&)> show);

}  // namespace lockstep
