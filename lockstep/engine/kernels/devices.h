// Devices other than the CPU: the available ones, the reasons why others cannot be used, and their
// back ends.
//
// The back end of GPUs is the shared library liblockstep_cuda.so, so that one executable runs on
// every machine. It is loaded at the first use of a GPU: from the executable's folder, from ../lib
// or the installation's library folder relative to it, or from the system's search path.
// LOCKSTEP_CUDA_LIBRARY overrides the path.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/kernels/backends/backend.h"

namespace lockstep::kernels {

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
// first usable GPU whose kernels have all run on hardware (backends/support.h), else the CPU.
// `try_out` replaces that check of all kernels: it tries a device, for example by compiling a plan,
// and throws Unsupported if the device cannot do the work. Throws InvalidArgument for other text,
// and Unsupported with the reason for a GPU that cannot be used.
Device resolve_device(std::string_view text, const std::function<void(Device)>& try_out = {});

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

}  // namespace lockstep::kernels
