// The thread that has a pool's worker processes: it starts them, ends them and hears of their ends.
// (Workers end with the thread that started them.)
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/process_seat.h"
#include "lockstep/parallel/process/workers.h"

namespace lockstep::detail {

// What the pool is told, by the warden's thread.
struct WardenReports {
  // A process serves the ticket; or, where the number is 0, none does, and why.
  std::function<void(const SeatTicket&, uint32_t worker, pid_t pid, const std::string& why)>
      started;
  // It has ended.
  std::function<void(uint32_t worker, const WorkerEnd& end)> ended;
  // No process can be started or heard of any more.
  std::function<void(const std::string& why)> failed;
  // So many strangers have tried to come in.
  std::function<void(int64_t strangers)> refused;
};

// Thread-safe.
class ProcessWarden {
 public:
  // Keep the memory alive. `reports` are called from begin() on.
  ProcessWarden(const SharedMemory& memory, const ProcessPoolOptions& options,
                WardenReports reports);
  ~ProcessWarden();

  void begin();
  void start(const SeatTicket& ticket);
  // At once; it is reported as ended for that reason ("": as its end says).
  void kill(uint32_t worker, const std::string& reason);
  // Ends all processes; nothing is reported afterwards. Not with anything locked that reports lock.
  void stop();

 private:
  struct Request {
    SeatTicket ticket;    // to start for
    uint32_t worker = 0;  // else to kill
    std::string reason;
  };

  void ask(Request request);
  void run();
  void start(Workers& workers, const SeatTicket& ticket);

  const SharedMemory& memory_;
  const ProcessPoolOptions options_;
  const WardenReports reports_;
  const Descriptor asked_;
  std::mutex mutex_;
  std::vector<Request> requests_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::detail
