#include "lockstep/parallel/process/runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/host_main.h"
#include "lockstep/parallel/process/worker_start.h"

namespace lockstep {
namespace {

constexpr double kFirstTaskLimit = 60;

bool runtime_present = false;
WorkerContext* context = nullptr;

void limit_memory(uint64_t bytes) {
  if (bytes == 0) return;
  // Private data; what is shared, or read from files, does not count.
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_DATA, &limit);
}

// Nothing of this process outlives the client, and nothing in it is worth cleaning up.
[[noreturn]] void end_at_once() { _exit(0); }

// Ctrl-C reaches all processes of a terminal, and who ends a job by SIGTERM often means all of it;
// the client decides what they mean, and its end is the workers' end.
void leave_signals_to_the_client() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
}

}  // namespace

struct WorkerMain {
  [[noreturn]] static void run() {
    const int lifeline = worker_lifeline, arena = worker_arena;
    fcntl(lifeline, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also where the client ends while this one is stopped
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
    limit_memory(start.memory_bytes);
    WorkerContext mine;
    mine.worker_ = start.ticket.worker;
    mine.memory_ = std::make_unique<SharedMemory>(arena);
    mine.channel_ = std::make_unique<ChannelClient>(start.ticket, lifeline, end_at_once);
    context = &mine;
    mine.channel_->send(with_prefix(WorkerSays::hello, {}));
    const bool done = work(mine);
    mine.channel_.reset();  // delivers what was said last
    _exit(done ? 0 : 1);
  }

  // Runs the one task it is given. Whether that ended well.
  static bool work(WorkerContext& mine) {
    try {
      const auto task = mine.receive(TimeLimit(kFirstTaskLimit));
      if (!task) return false;
      decode<Call<void>> (*task)();
      mine.channel_->send(with_prefix(WorkerSays::finished, {}));
      return true;
    } catch (...) {
      mine.channel_->send(with_prefix(WorkerSays::failed, encode(TaskError::current())));
      return false;
    }
  }
};

Runtime::Runtime(int argc, char** argv) {
  runtime_present = true;
  if (argc > 1 && std::strcmp(argv[1], worker_argument) == 0) WorkerMain::run();
  if (argc > 1 && std::strcmp(argv[1], host_argument) == 0) run_as_host();
}

bool Runtime::present() { return runtime_present; }

void WorkerContext::send(std::span<const std::byte> content) {
  channel_->send(with_prefix(WorkerSays::message, content));
}

WorkerContext& worker_context() {
  if (context == nullptr) throw InvalidArgument("[worker] this process is no worker");
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
    return {"Error", "there is not enough memory", ""};
  } catch (const std::exception& e) {
    return {"Error", e.what(), ""};
  } catch (...) {
    return {"Error", "something was thrown that is no exception", ""};
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
