// Worker processes of this machine, as their client sees them.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/shared_memory.h"
#include "lockstep/parallel/process/channel.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/runtime.h"
#include "lockstep/parallel/process/worker_end.h"

namespace lockstep {

struct WorkerOptions {
  uint64_t memory_bytes = 0;  // each worker's own data at most; 0: no limit
  // Set in the workers' environment.
  std::vector<std::pair<std::string, std::string>> environment = {};
  double start_limit = 60;  // seconds from a worker's start until it says something
};

// Which cores worker `slot` (from 0) of so many gets, with a core for each of its threads; none, so
// that the system deals them, where there are not enough. More may come than there were at first.
// Thread-safe.
std::vector<int> cores_of_worker(int slot, int workers, int threads);

// What happened to a worker.
struct WorkerEvent {
  enum class Kind {
    message,   // of its task
    finished,  // its task returned
    failed,    // its task threw `error`
    lost,      // the process ended before its task did; `end` says how
  };
  Kind kind = Kind::message;
  uint32_t worker = 0;
  Bytes content = {};
  TaskError error = {};
  WorkerEnd end = {};
};

// Starts workers, sends to them, hears of them, and ends them all in its destructor; they also end
// at once when this process does, however that happens. One thread, which must live as long as the
// workers (they end with the thread that started them).
class Workers {
 public:
  // Throws InvalidArgument in a program without a Runtime. Keep the arena alive.
  explicit Workers(const SharedMemory& memory, const WorkerOptions& options = {});
  ~Workers();

  // Starts a process for a task. `cores`: it may run on these only; empty: on all. Returns its
  // number; none is used twice. Throws Error where the system refuses.
  uint32_t start(const Call<void>& task, const std::vector<int>& cores = {});
  // False where the worker is gone or not there yet.
  bool send(uint32_t worker, std::span<const std::byte> content);
  // The next event; none at the limit, or when the descriptor `also` is readable. What a worker
  // said before it was lost comes before that.
  std::optional<WorkerEvent> wait(const TimeLimit& limit, int also = -1);
  // Ends a worker at once; it is lost then, for that reason ("hung"; "": as its end says).
  void kill(uint32_t worker, const std::string& reason);

  bool present(uint32_t worker) const;
  pid_t pid(uint32_t worker) const;
  // Strangers that have tried to come in on the control channel so far; none is a worker that died
  // while it came.
  int64_t strangers();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
