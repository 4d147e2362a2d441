#include "lockstep/parallel/process/worker_context.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <new>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/worker_start.h"

namespace lockstep {
namespace {

// Seconds for the client to send the task.
constexpr double kTaskLimit = 60;

bool runtime_present = false;
WorkerContext* context = nullptr;

// Memory that a worker needs in addition to what it has at its start: thread stacks, libraries, a
// network.
constexpr uint64_t kLeastMemory = uint64_t{48} << 20;

// A worker must not outlive its client, and nothing in it needs cleanup.
[[noreturn]] void end_at_once() { _exit(0); }

// Ctrl-C reaches all processes of a terminal, and SIGTERM is often sent to all processes of a job.
// The client alone reacts to these signals; its end is the workers' end.
void leave_signals_to_the_client() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  // Slurm sends signals to all processes of a step.
  if (std::getenv("SLURM_JOB_ID") != nullptr) signal(SIGUSR2, SIG_IGN);
}

}  // namespace

struct WorkerMain {
  [[noreturn]] static void run() {
    const int lifeline = worker_lifeline, arena = worker_arena;
    fcntl(lifeline, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if the client ends while this process is stopped
    prctl(PR_SET_NAME, "lockstep-worker");
    leave_signals_to_the_client();
    WorkerStart start;
    try {
      start = decode<WorkerStart>(receive_start(lifeline));
    } catch (const Error&) {
      end_at_once();
    }
    if (static_cast<int64_t>(getppid()) != start.parent) end_at_once();
    for (const auto& [name, value] : start.environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    run_on(start.cores);
    WorkerContext mine;
    mine.worker_ = start.ticket.worker;
    mine.memory_ = std::make_unique<SharedMemory>(arena);
    mine.channel_ = std::make_unique<ChannelClient>(start.ticket, lifeline, end_at_once);
    context = &mine;
    mine.channel_->send(with_prefix(WorkerMessage::hello, {}));
    const bool done = work(mine, start.memory_bytes);
    mine.channel_.reset();  // delivers the last message
    _exit(done ? 0 : 1);
  }

  // Runs the one task that it is given. Returns whether it succeeded.
  static bool work(WorkerContext& mine, uint64_t memory_bytes) {
    try {
      // After the channel is open, so that errors can be reported.
      if (memory_bytes > 0) limit_own_data(memory_bytes, "worker_memory_mib", kLeastMemory);
      const auto task = mine.channel_->receive(TimeLimit(kTaskLimit));
      if (!task) return false;
      decode<Call<void>> (*task)();
      return true;
    } catch (...) {
      mine.channel_->send(with_prefix(WorkerMessage::failed, encode(TaskError::current())));
      return false;
    }
  }
};

void run_as_worker() { WorkerMain::run(); }

bool has_runtime() { return runtime_present; }
void set_has_runtime() { runtime_present = true; }

WorkerContext& worker_context() {
  if (context == nullptr) throw InvalidArgument("[worker] this process is not a worker");
  return *context;
}

TaskError TaskError::current() {
  try {
    throw;
  } catch (const FileError& e) {
    return {"FileError", e.what(), e.hint()};
  } catch (const DataError& e) {
    return {"DataError", e.what(), e.hint()};
  } catch (const InvalidArgument& e) {
    return {"InvalidArgument", e.what(), e.hint()};
  } catch (const Unsupported& e) {
    return {"Unsupported", e.what(), e.hint()};
  } catch (const Timeout& e) {
    return {"Timeout", e.what(), e.hint()};
  } catch (const Cancelled& e) {
    return {"Cancelled", e.what(), e.hint()};
  } catch (const WorkerLost& e) {
    return {"WorkerLost", e.what(), e.hint()};
  } catch (const InternalError& e) {
    return {"InternalError", e.what(), e.hint()};
  } catch (const Error& e) {
    return {"Error", e.what(), e.hint()};
  } catch (const std::bad_alloc&) {
    return {"Error", out_of_memory_text(), out_of_memory_hint()};
  } catch (const std::system_error& e) {
    return {"Error", "system error: " + e.code().message(), ""};
  } catch (const std::exception& e) {
    return {"Error", e.what(), ""};
  } catch (...) {
    return {"Error", "an object was thrown that is not a std::exception", ""};
  }
}

void TaskError::rethrow(const std::string& where) const {
  const std::string text = where + message;
  if (kind == "FileError") throw FileError(text, hint);
  if (kind == "DataError") throw DataError(text, hint);
  if (kind == "InvalidArgument") throw InvalidArgument(text, hint);
  if (kind == "Unsupported") throw Unsupported(text, hint);
  if (kind == "Timeout") throw Timeout(text, hint);
  if (kind == "Cancelled") throw Cancelled(text, hint);
  if (kind == "WorkerLost") throw WorkerLost(text, hint);
  if (kind == "InternalError") throw InternalError(text, hint);
  throw Error(text, hint);
}

}  // namespace lockstep
