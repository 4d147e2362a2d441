// Interface of a back end in a shared library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/engine/device/device_group.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/devices.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/interface/choice.h"

namespace lockstep::kernels {

// Returned by the library's only exported function. The two versions come first and are checked
// before any other member is read. The rest is C++, so library and caller must be built together.
struct Backend {
  int version = 0;                        // Table::kVersion of the library
  const char* project_version = nullptr;  // "0.1.0"
  const Table* table = nullptr;           // null entries: no kernel
  // Lists the devices. If there are none, sets `reason`.
  std::vector<DeviceInfo> (*devices)(std::string& reason) = nullptr;
  std::shared_ptr<DeviceMemory> (*memory)(int index) = nullptr;
  // Makes groups with devices of other processes. May return null: not supported.
  std::shared_ptr<DeviceGroups> (*groups)(int index) = nullptr;
  // Names and versions of the libraries that results depend on, and of the driver.
  std::vector<std::pair<std::string, std::string>> (*versions)() = nullptr;
  // Sets the function that is called for the choice of algorithms whenever a kernel is made. Null:
  // the back end has no choice.
  void (*follow)(Choice (*choice)()) = nullptr;
};

using BackendFunction = const Backend* (*)();
inline constexpr const char* kBackendFunction = "lockstep_cuda_backend";

// Why CUDA finds no device. `error` is the error of counting the devices. `driver` and `runtime`
// are CUDA versions (13000 is 13.0) of the driver and the library; a driver of 0 means that none is
// installed.
std::string driver_problem(const std::string& error, int driver, int runtime);

// Whether code for `architectures` ("80-real,90a-real,90-virtual", in CMake's notation) runs on a
// GPU of this compute capability.
bool has_code_for(std::string_view architectures, int major, int minor);

}  // namespace lockstep::kernels
