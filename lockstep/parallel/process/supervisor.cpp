#include "lockstep/parallel/process/supervisor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/quiet_thread.h"

namespace lockstep::detail {
namespace {

// Seconds between checks for strangers.
constexpr double kLookForEvents = 0.1;

}  // namespace

WorkerEnd start_failure(const std::exception& error) {
  WorkerEnd end{.how = error.what()};
  if (const auto* const known = dynamic_cast<const Error*>(&error)) end.hint = known->hint();
  end.hopeless = dynamic_cast<const InvalidArgument*>(&error) != nullptr;
  return end;
}

LocalSupervisor::LocalSupervisor(const SharedMemory& memory, const ProcessPoolOptions& options,
                                 SupervisorEvents reports)
    : memory_(memory),
      options_(options),
      reports_(std::move(reports)),
      asked_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

LocalSupervisor::~LocalSupervisor() { stop(); }

void LocalSupervisor::begin() {
  thread_ = quiet_thread([this] {
    try {
      run();
    } catch (const std::exception& e) {
      reports_.failed(e.what());
    }
  });
}

void LocalSupervisor::start(const SlotTicket& ticket) { ask({ticket, 0, {}}); }

void LocalSupervisor::kill(uint32_t worker, const std::string& reason) {
  ask({{}, worker, reason});
}

void LocalSupervisor::ask(Request request) {
  const MutexLock lock(mutex_);
  requests_.push_back(std::move(request));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(asked_.get(), &one, sizeof one);
}

void LocalSupervisor::stop() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(asked_.get(), &one, sizeof one);
  }
  if (thread_.joinable()) thread_.join();
}

void LocalSupervisor::run() {
  WorkerOptions options;
  options.memory_bytes = options_.memory_bytes;
  options.environment = options_.environment;
  Workers workers(memory_, options);
  int64_t strangers = 0;
  for (;;) {
    std::vector<Request> requests;
    {
      const MutexLock lock(mutex_);
      if (ended_) return;
      requests = std::exchange(requests_, {});
      uint64_t asked = 0;
      [[maybe_unused]] const ssize_t n = read(asked_.get(), &asked, sizeof asked);
    }
    for (const Request& request : requests) {
      if (request.worker == 0) {
        start(workers, request.ticket);
      } else {
        workers.kill(request.worker, request.reason);
      }
    }
    const auto event = workers.wait(TimeLimit(kLookForEvents), asked_.get());
    const int64_t refused = workers.strangers();
    if (refused > strangers) reports_.refused(refused - strangers);
    strangers = refused;
    if (!event) continue;
    reports_.ended(
        event->worker,
        event->kind == WorkerEvent::Kind::failed
            ? WorkerEnd{.how = event->error.message, .hint = event->error.hint, .hopeless = true}
            : event->end);
  }
}

void LocalSupervisor::start(Workers& workers, const SlotTicket& ticket) {
  uint32_t number = 0;
  WorkerEnd why;
  try {
    number = workers.start(make_call<&serve_pool>(ticket),
                           cores_of_worker(ticket.local_rank, options_.workers, options_.threads));
  } catch (const std::exception& e) {
    why = start_failure(e);
  }
  reports_.started(ticket, number, number == 0 ? 0 : workers.pid(number), why);
}

}  // namespace lockstep::detail
