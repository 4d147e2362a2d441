// How much of this machine is in use.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {

// Thread-safe. A thread of this class reads the GPUs, so that a driver that hangs blocks no caller.
class MachineUse {
 public:
  // `gpu_library`: NVIDIA's management library. GPUs that do not answer for `patience` seconds are
  // left out.
  explicit MachineUse(std::string gpu_library = "libnvidia-ml.so.1", double patience = 5);
  // Waits for GPUs half a second at most; the thread of one that hangs is detached.
  ~MachineUse();
  MachineUse(const MachineUse&) = delete;
  MachineUse& operator=(const MachineUse&) = delete;

  // Reads the system's counters if they are older than a second, and has the GPUs' read. Never
  // waits for them.
  void refresh();
  // {"processors": number, "busy": share of their time between the last two readings, or null,
  // "memory": share of the memory that is in use, "memory_bytes": of all, "gpus": as
  // GpuUse::json() at the last reading, "gpus_silent": seconds for which they have not answered,
  // or null}.
  nlohmann::ordered_json json() const;

 private:
  struct Gpus;
  const std::shared_ptr<Gpus> gpus_;  // shared with its thread
  mutable Mutex mutex_;
  double read_at_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  double idle_ LOCKSTEP_GUARDED_BY(mutex_) = 0, total_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  double busy_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  double memory_ LOCKSTEP_GUARDED_BY(mutex_) = 0, memory_kib_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
