// Devices other than the CPU: which there are, why others cannot be used, and their back ends.
//
// The GPUs' back end is a shared library of its own, liblockstep_cuda.so, loaded when a GPU is
// first asked for, so that one executable runs everywhere. It is looked for beside the executable
// and in
// ../lib of its folder, then where the system looks; LOCKSTEP_CUDA_LIBRARY names it instead.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/kernels/backend.h"

namespace lockstep::kernels {

// The GPUs of this machine; empty where no_devices_reason() says why. Thread-safe.
std::vector<DeviceInfo> list_devices();

// Why there is no GPU that can be used, and what to do about it; both empty where there is one.
struct Reason {
  std::string text;
  std::string hint;
};
Reason no_devices_reason();

// The loaded library's path and what it rests on ("cuDNN", "9.19.0"); empty where there is none.
std::string backend_path();
std::vector<std::pair<std::string, std::string>> backend_versions();

// Chooses the device that "auto" stands for in the calling thread from now on; none: whichever can
// be used again. A worker of a pool keeps it from task to task, so that what is trained there later
// computes on it; a process that takes a lost worker's place does not have it. Returns what was
// chosen before. Throws Unsupported with the reason for a GPU that cannot be used.
std::optional<Device> choose_device(std::optional<Device> device);
std::optional<Device> chosen_device();

// The device of a text: "cpu", "cuda", "cuda:N", or "auto": the chosen one; else the first GPU that
// can be used and whose kernels have run on hardware (support.h), else the CPU. `try_out` throws
// Unsupported where a device cannot do what is wanted, for example by compiling a plan; without it
// all kernels count. Throws InvalidArgument for other text, Unsupported with the reason for a GPU
// that cannot be used.
Device resolve_device(std::string_view text, const std::function<void(Device)>& try_out = {});

// Makes `table` (null: none) the kernels of a device. For back ends; memory is registered apart
// (tensor/device_memory.h).
void register_table(Device device, const Table* table);

// A library opened, or why not. Never closed: what it made lives on.
struct BackendLibrary {
  const Backend* backend = nullptr;
  std::string path;
  Reason reason;
};
BackendLibrary open_backend(const std::string& path);

}  // namespace lockstep::kernels
