// What a back end in a shared library of its own offers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/choice.h"
#include "lockstep/engine/kernels/table.h"
#include "lockstep/engine/tensor/device_group.h"
#include "lockstep/engine/tensor/device_memory.h"

namespace lockstep::kernels {

struct DeviceInfo {
  Device device;
  std::string name;                                // "NVIDIA H200"
  size_t memory_total = 0, memory_free = 0;        // bytes
  int capability_major = 0, capability_minor = 0;  // 9.0
  bool has_code = false;                           // the library's kernels run on it
  std::string problem;                             // why it cannot be used; "" where it can

  bool usable() const { return has_code && problem.empty(); }
};

// Returned by the library's only exported function. The two versions come first and are checked
// before anything else is looked at: the rest is C++, so library and caller belong together.
struct Backend {
  int version = Table::kVersion;
  const char* project_version = nullptr;  // "0.1.0"
  const Table* table = nullptr;           // null entries: no kernel
  // The devices; where there are none, `reason` says why.
  std::vector<DeviceInfo> (*devices)(std::string& reason) = nullptr;
  std::shared_ptr<DeviceMemory> (*memory)(int index) = nullptr;
  // Who makes groups with other processes' devices; null: nobody.
  std::shared_ptr<DeviceGroups> (*groups)(int index) = nullptr;
  // Libraries that results depend on, and the driver.
  std::vector<std::pair<std::string, std::string>> (*versions)() = nullptr;
  // Who is asked whenever a kernel is made; null: nobody asks.
  void (*follow)(Choice (*choice)()) = nullptr;
};

using BackendFunction = const Backend* (*)();
inline constexpr const char* kBackendFunction = "lockstep_cuda_backend";

// Why CUDA finds no device, from the error that counting them gave and the versions of CUDA (13000
// is 13.0) that driver and library have; 0 is a driver that is not there.
std::string driver_problem(const std::string& error, int driver, int runtime);

// Whether code built for `architectures` ("80-real,90a-real,90-virtual", as CMake spells them) runs
// on a GPU of this compute capability.
bool has_code_for(std::string_view architectures, int major, int minor);

}  // namespace lockstep::kernels
