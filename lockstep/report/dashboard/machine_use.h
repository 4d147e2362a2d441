// How much of this machine is in use.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/report/dashboard/gpu_use.h"

namespace lockstep {

// Thread-safe.
class MachineUse {
 public:
  // Reads the system's counters if they are older than a second.
  void refresh();
  // {"processors": number, "busy": share of their time between the last two readings, or null,
  // "memory": share of the memory that is in use, "memory_bytes": of all, "gpus": as
  // GpuUse::json()}.
  nlohmann::ordered_json json() const;

 private:
  mutable Mutex mutex_;
  const GpuUse gpu_use_;
  std::string gpus_ LOCKSTEP_GUARDED_BY(mutex_) = "[]";  // as JSON
  double read_at_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  double idle_ LOCKSTEP_GUARDED_BY(mutex_) = 0, total_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  double busy_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  double memory_ LOCKSTEP_GUARDED_BY(mutex_) = 0, memory_kib_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
