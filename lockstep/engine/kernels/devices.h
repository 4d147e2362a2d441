// The back ends of devices other than the CPU, and the tables of kernels that they provide.
#pragma once

#include <string>

#include "lockstep/engine/device/devices.h"
#include "lockstep/engine/kernels/backends/backend.h"

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

}  // namespace lockstep::kernels
