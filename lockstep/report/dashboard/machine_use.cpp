#include "lockstep/report/dashboard/machine_use.h"

#include <chrono>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/threads/limited_thread.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/report/dashboard/gpu_use.h"

namespace lockstep {
namespace {

constexpr double kGpusEndSeconds = 0.5;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct MachineUse::Gpus {
  Gpus(std::string name, double seconds) : library(std::move(name)), patience(seconds) {}

  const std::string library;
  const double patience;
  LimitedThread thread;

  mutable Mutex mutex;
  ConditionVariable asked;
  std::string read LOCKSTEP_GUARDED_BY(mutex) = "[]";  // as JSON
  double since LOCKSTEP_GUARDED_BY(mutex) = 0;         // when it was asked
  bool started LOCKSTEP_GUARDED_BY(mutex) = false, waiting LOCKSTEP_GUARDED_BY(mutex) = false;
  bool ending LOCKSTEP_GUARDED_BY(mutex) = false;

  void work();
  double silent() const LOCKSTEP_REQUIRES(mutex) { return waiting ? seconds_now() - since : 0; }
};

void MachineUse::Gpus::work() {
  std::optional<GpuUse> use;
  while (true) {
    {
      MutexLock lock(mutex);
      while (!waiting && !ending) asked.wait(mutex);
      if (ending) break;
    }
    // Without the lock, because it may hang.
    std::string text = "[]";
    try {
      if (!use) use.emplace(library);
      text = use->json().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    } catch (const std::exception&) {  // shown without GPUs; asked again later
    }
    const MutexLock lock(mutex);
    read = std::move(text);
    waiting = false;
  }
}

MachineUse::MachineUse(std::string gpu_library, double patience)
    : gpus_(std::make_shared<Gpus>(std::move(gpu_library), patience)) {}

MachineUse::~MachineUse() {
  Gpus& g = *gpus_;
  if (!g.thread.joinable()) return;
  {
    const MutexLock lock(g.mutex);
    g.ending = true;
    g.asked.notify_all();
  }
  g.thread.join(TimeLimit(kGpusEndSeconds));
}

void MachineUse::refresh() {
  const MutexLock lock(mutex_);
  if (seconds_now() - read_at_ < 1) return;
  read_at_ = seconds_now();
  {
    const MutexLock gpus_lock(gpus_->mutex);
    if (!std::exchange(gpus_->started, true)) {
      try {
        gpus_->thread = LimitedThread([gpus = gpus_] { gpus->work(); });
      } catch (const Error&) {  // shown without GPUs
      }
    }
    if (gpus_->thread.joinable() && !std::exchange(gpus_->waiting, true)) {
      gpus_->since = seconds_now();
      gpus_->asked.notify_all();
    }
  }
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
  auto gpus = nlohmann::ordered_json::array();
  nlohmann::ordered_json silent;
  {
    const MutexLock lock(gpus_->mutex);
    const double seconds = gpus_->silent();
    if (seconds < gpus_->patience) {
      gpus = parse_json<nlohmann::ordered_json>(gpus_->read);
    } else {
      silent = seconds;
    }
  }
  const MutexLock lock(mutex_);
  return {{"processors", std::thread::hardware_concurrency()},
          {"busy", busy_ < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(busy_)},
          {"memory", memory_},
          {"memory_bytes", 1024 * memory_kib_},
          {"gpus", std::move(gpus)},
          {"gpus_silent", std::move(silent)}};
}

}  // namespace lockstep
