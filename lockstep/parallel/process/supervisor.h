// The supervisor of a pool's worker processes: a thread that starts them, ends them and detects
// their ends. LocalSupervisor does so on this machine, a RemoteSupervisor (host_support.h) on
// others; both report in the same way.
#pragma once

#include <sys/types.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/slot_memory.h"
#include "lockstep/parallel/process/workers.h"

namespace lockstep::detail {

// Callbacks to the owner of a supervisor, in the supervisor's thread.
struct SupervisorEvents {
  // A process serves the ticket. If `worker` is 0, none could be started; `why` says how it failed.
  std::function<void(const SlotTicket&, uint32_t worker, pid_t pid, const WorkerEnd& why)> started;
  // The process has ended.
  std::function<void(uint32_t worker, const WorkerEnd& end)> ended;
  // No process can be started or monitored any more.
  std::function<void(const std::string& why)> failed;
  // Number of strangers' attempts to connect since the last call.
  std::function<void(int64_t strangers)> refused;
  // There are reports of the worker on another host whose slot lies at this offset, or there is
  // room for its orders. (Workers on this machine ring the pool's bell.)
  std::function<void(size_t slot)> rung = {};
};

// Why a process could not be started. Only what the caller must correct is hopeless: a limit on
// processes or a full disk may pass.
WorkerEnd start_failure(const std::exception& error);

// Thread-safe.
class Supervisor {
 public:
  virtual ~Supervisor() = default;

  // Reports begin.
  virtual void begin() = 0;
  virtual void start(const SlotTicket& ticket) = 0;
  // Kills it at once. Its end is reported with this reason ("": with the way the process ended).
  virtual void kill(uint32_t worker, const std::string& reason) = 0;
  // Ends all processes; nothing is reported afterwards. The caller must not hold a mutex that the
  // callbacks lock.
  virtual void stop() = 0;
};

// Owns the processes in its thread, with which workers end.
class LocalSupervisor final : public Supervisor {
 public:
  // The memory must outlive it.
  LocalSupervisor(const SharedMemory& memory, const ProcessPoolOptions& options,
                  SupervisorEvents reports);
  ~LocalSupervisor() override;

  void begin() override;
  void start(const SlotTicket& ticket) override;
  void kill(uint32_t worker, const std::string& reason) override;
  void stop() override;

 private:
  struct Request {
    SlotTicket ticket;    // to start
    uint32_t worker = 0;  // to kill; 0: start
    std::string reason;
  };

  void ask(Request request) LOCKSTEP_EXCLUDES(mutex_);
  void run();
  void start(Workers& workers, const SlotTicket& ticket);

  const SharedMemory& memory_;
  const ProcessPoolOptions options_;
  const SupervisorEvents reports_;
  const Descriptor asked_;
  Mutex mutex_;
  std::vector<Request> requests_ LOCKSTEP_GUARDED_BY(mutex_);
  bool ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep::detail
