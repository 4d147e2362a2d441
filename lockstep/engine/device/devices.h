// Devices other than the CPU: the available ones, and the reasons why others cannot be used. And
// whether equal computations must give equal bits.
//
// The back end of GPUs is the shared library liblockstep_cuda.so, so that one executable runs on
// every machine. It is loaded at the first use of a GPU: from the executable's folder, from ../lib
// or the installation's library folder relative to it, or from the system's search path.
// LOCKSTEP_CUDA_LIBRARY overrides the path.
//
// Before the first use of a GPU its kernels are tested there, in a child process, for at most a
// minute; the verdict is kept in the user's folder. What has not passed is refused with what was
// seen. A program needs a Runtime (cluster/runtime.h) for the test, or `lockstep verify-device`
// has run before.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep::kernels {

// A GPU of this machine.
struct DeviceInfo {
  Device device;
  std::string name;                                // "NVIDIA H200"
  size_t memory_total = 0, memory_free = 0;        // bytes; free: 0 if it is not known
  int capability_major = 0, capability_minor = 0;  // 9.0
  bool has_code = false;                           // the library has kernels for this GPU
  std::string uuid;                                // "GPU-01234567-...": of this hardware
  std::string problem;                             // why it cannot be used; "" if it can

  bool usable() const { return has_code && problem.empty(); }
};

// The GPUs of this machine; empty if there are none (see no_devices_reason()). Thread-safe.
std::vector<DeviceInfo> list_devices();

// Why no GPU can be used, with a hint for the user. Both are empty if there is a usable GPU.
struct Reason {
  std::string text;
  std::string hint;
};
Reason no_devices_reason();

// The loaded library's path, and the libraries that it depends on ("cuDNN", "9.19.0"). Empty if no
// library is loaded.
std::string backend_path();
std::vector<std::pair<std::string, std::string>> backend_versions();

// Sets the device that "auto" means in the calling thread from now on; nullopt restores the
// default. A pool worker keeps the choice from task to task, so later training in the worker uses
// it. A process that replaces a lost worker does not have the choice. Returns the previous choice.
// Throws Unsupported, with the reason, for a GPU that cannot be used.
std::optional<Device> choose_device(std::optional<Device> device);
std::optional<Device> chosen_device();

// Parses "cpu", "cuda", "cuda:N" or "auto". "auto" is the chosen device if there is one, else the
// first usable GPU whose kernels have all passed its self-test, else the CPU. `try_out` replaces
// that check of all kernels: it tries a device, for example by compiling a plan, and throws
// Unsupported if the device cannot do the work. Throws InvalidArgument for other text, and
// Unsupported with the reason for a GPU that cannot be used.
Device resolve_device(std::string_view text, const std::function<void(Device)>& try_out = {});

}  // namespace lockstep::kernels

namespace lockstep {

// Switches deterministic algorithms on (the default) or off for the whole process, and returns the
// previous setting. When off, which may be faster, sums over shards are taken in the order of
// arrival, and a GPU may use algorithms whose bits differ from run to run. Models that are already
// compiled or in training keep their setting. Thread-safe.
bool set_deterministic(bool on);
// The current setting. Thread-safe.
bool deterministic();

}  // namespace lockstep
