// The client's interface to its worker processes on this machine.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/messages/channel.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/parallel/process/worker_end.h"

namespace lockstep {

struct WorkerOptions {
  uint64_t memory_bytes = 0;  // limit for each worker's own data; 0: no limit
  // Set in the workers' environment.
  std::vector<std::pair<std::string, std::string>> environment = {};
  double start_limit = 60;  // seconds from a worker's start until its first message
};

// The cores of the worker `local_rank` (from 0) among `workers` on this host: one for each of its
// threads. Empty if there are too few cores, so that the system places the threads. `local_rank`
// may be >= `workers`, for workers that were added later. Thread-safe.
std::vector<int> cores_of_worker(int local_rank, int workers, int threads);

// An event of a worker, or of a remote agent (cluster/remote/host_processes.h).
struct WorkerEvent {
  enum class Kind {
    message,  // a message of an agent
    failed,   // the worker's task threw `error`
    lost,     // the process has ended otherwise, see `end`
  };
  Kind kind = Kind::message;
  uint32_t worker = 0;
  Bytes content = {};
  TaskError error = {};
  WorkerEnd end = {};
};

// The processes of a LocalSupervisor, without its thread and for any task.
//
// Starts workers, reports their ends, and ends them all in its destructor. They also end at once
// when this process ends, however that happens. Used by one thread, which must live as long as the
// workers (they end with the thread that started them).
class Workers {
 public:
  // Throws InvalidArgument in a program without a Runtime. The arena must outlive it.
  explicit Workers(const SharedMemory& memory, const WorkerOptions& options = {});
  ~Workers();

  // Starts a process for a task. `cores`: it may run only on these; empty: on all. Returns its
  // number, which is never reused. Throws Error if the system refuses.
  uint32_t start(const Call<void>& task, const std::vector<int>& cores = {});
  // The next event, a failure or a loss; none at the limit, or when the descriptor `also` is
  // readable. A worker has one event.
  std::optional<WorkerEvent> wait(const TimeLimit& limit, int also = -1);
  // Kills a worker at once. It is reported as lost for this reason ("hung"; "": the way it ended).
  void kill(uint32_t worker, const std::string& reason);

  bool present(uint32_t worker) const;
  pid_t pid(uint32_t worker) const;
  // Number of strangers' attempts to connect to the control channel so far. Workers that died while
  // they connected do not count.
  int64_t strangers();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
