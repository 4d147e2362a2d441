// How much of this machine's GPUs is in use, from NVIDIA's management library.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// One thread at a time. A driver or GPU that hangs holds up the constructor and json().
class GpuUse {
 public:
  // Loads the library. Machines without it have no GPUs that could be asked.
  explicit GpuUse(const std::string& library);

  // [{"name", "busy": share of the last moments in which kernels ran, or null, "memory": share that
  // is in use, or null, "memory_bytes": of all, or null}] by index; empty without GPUs.
  nlohmann::ordered_json json() const;

 private:
  // The library's functions and structs, as its documentation states them (nvml.h).
  using Handle = void*;
  struct Utilization {
    unsigned int gpu, memory;  // percent
  };
  struct Memory {
    unsigned long long total, free, used;  // bytes
  };
  int (*count_)(unsigned int*) = nullptr;
  int (*handle_)(unsigned int, Handle*) = nullptr;
  int (*name_)(Handle, char*, unsigned int) = nullptr;
  int (*utilization_)(Handle, Utilization*) = nullptr;
  int (*memory_)(Handle, Memory*) = nullptr;
  bool usable_ = false;
};

}  // namespace lockstep
