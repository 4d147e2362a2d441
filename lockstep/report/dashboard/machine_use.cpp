#include "lockstep/report/dashboard/machine_use.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "lockstep/base/json/json_text.h"

namespace lockstep {

void MachineUse::refresh() {
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  {
    const MutexLock lock(mutex_);
    if (now - read_at_ < 1) return;
    read_at_ = now;
  }
  // Without the lock, because a GPU that hangs would block everybody who reads.
  std::string gpus =
      gpu_use_.json().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const MutexLock lock(mutex_);
  gpus_ = std::move(gpus);
  std::ifstream stat("/proc/stat");
  std::string word;
  stat >> word;  // "cpu": all processors
  double total = 0, idle = 0, value = 0;
  for (int i = 0; i < 8 && stat >> value; ++i) {
    total += value;
    if (i == 3 || i == 4) idle += value;  // idle, and waiting for disks
  }
  if (total_ > 0 && total > total_) busy_ = 1 - (idle - idle_) / (total - total_);
  total_ = total;
  idle_ = idle;
  std::ifstream memory("/proc/meminfo");
  double all = 0, available = 0;
  std::string unit;
  while (memory >> word >> value) {
    if (word == "MemTotal:") all = value;
    if (word == "MemAvailable:") available = value;
    std::getline(memory, unit);
  }
  memory_kib_ = all;
  if (all > 0) memory_ = 1 - available / all;
}

nlohmann::ordered_json MachineUse::json() const {
  const MutexLock lock(mutex_);
  return {{"processors", std::thread::hardware_concurrency()},
          {"busy", busy_ < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(busy_)},
          {"memory", memory_},
          {"memory_bytes", 1024 * memory_kib_},
          {"gpus", parse_json<nlohmann::ordered_json>(gpus_)}};
}

}  // namespace lockstep
