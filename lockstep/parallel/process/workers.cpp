#include "lockstep/parallel/process/workers.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/messages/strangers.h"
#include "lockstep/parallel/process/child_process.h"
#include "lockstep/parallel/process/oom_kills.h"
#include "lockstep/parallel/process/worker_start.h"

namespace lockstep {
namespace {

// Seconds between checks for stopped workers, and seconds that a worker may be stopped.
constexpr double kLookAtEnds = 0.1, kStopped = 1.0;

constexpr const char* kWasStopped = "was stopped";

struct Worker {
  ChildProcess process;
  Descriptor lifeline;
  Call<void> task;
  TimeLimit hello;                        // deadline for its first message
  bool has_task = false;                  // it has sent hello and was given its task
  bool failed = false;                    // its task has failed
  std::optional<TimeLimit> stopped = {};  // until when it may be stopped
  std::string reason = {};                // why this process killed it
};

}  // namespace

struct Workers::State {
  State(const SharedMemory& m, const WorkerOptions& o) : memory(m), options(o) {}

  const SharedMemory& memory;
  const WorkerOptions options;
  ChannelServer channel;
  std::map<uint32_t, Worker> workers;
  std::deque<WorkerEvent> events;
  uint32_t next = 1;
  TimeLimit look{kLookAtEnds};
  OomKills oom_kills;
  Strangers strangers;

  double seconds_since_start(const Worker& w) const { return options.start_limit - w.hello.left(); }

  void take_messages() {
    while (auto message = channel.receive()) take(*message);
  }

  void take(ChannelServer::Message& message) {
    const auto found = workers.find(message.worker);
    if (found == workers.end() || message.content.empty()) return;
    Worker& w = found->second;
    std::span<const std::byte> rest = message.content;
    const auto says = take_prefix<WorkerMessage>(rest);
    if (says == WorkerMessage::hello && !w.has_task) {
      w.has_task = true;
      strangers.came(seconds_since_start(w));
      channel.send(message.worker, encode(w.task));
    } else if (says == WorkerMessage::failed && !w.failed) {
      w.failed = true;
      events.push_back({.kind = WorkerEvent::Kind::failed,
                        .worker = message.worker,
                        .error = decode<TaskError>(rest)});
    }
  }

  void look_at(Worker& w) {
    if (!w.has_task && w.hello.reached()) {
      w.reason = "sent no message after its start";
    } else if (!w.process.stopped()) {
      w.stopped.reset();
      return;
    } else if (!w.stopped) {
      w.stopped.emplace(kStopped);
      return;
    } else if (w.stopped->reached()) {
      w.reason = kWasStopped;
    } else {
      return;
    }
    w.process.kill();
  }

  WorkerEnd end_of(const Worker& w) {
    if (!w.reason.empty()) {
      return {.how = w.reason + " and was ended", .outside = w.reason == kWasStopped};
    }
    WorkerEnd end{.how = w.process.how(), .own_fault = w.process.own_fault()};
    if (w.process.killed() && oom_kills.take()) {
      end.how += ", by the system: its control group had no memory left";
      end.own_fault = true;
    }
    end.outside = !end.own_fault && w.process.signaled();
    return end;
  }

  void find_lost() {
    std::vector<uint32_t> ended;
    for (auto& [number, w] : workers) {
      if (w.process.ended()) ended.push_back(number);
    }
    if (ended.empty()) return;
    // Their last messages have arrived or will arrive soon: a failure is reported in place of a
    // loss.
    for (const TimeLimit limit(0.01); !limit.reached(); channel.wait(limit, {})) take_messages();
    take_messages();
    for (const uint32_t number : ended) {
      Worker& w = workers.at(number);
      if (!w.failed) {
        events.push_back({.kind = WorkerEvent::Kind::lost, .worker = number, .end = end_of(w)});
      }
      if (!w.has_task) strangers.died(seconds_since_start(w));
      channel.dismiss(number);
      workers.erase(number);
    }
  }
};

std::vector<int> cores_of_worker(int local_rank, int workers, int threads) {
  const std::vector<int> all = own_cores();
  const int64_t used = int64_t{threads} * std::max(workers, local_rank + 1);
  if (used > static_cast<int64_t>(all.size())) return {};
  const auto first = all.begin() + std::ptrdiff_t{local_rank} * threads;
  return {first, first + threads};
}

Workers::Workers(const SharedMemory& memory, const WorkerOptions& options)
    : state_(std::make_unique<State>(memory, options)) {
  if (has_runtime()) return;
  throw InvalidArgument("[workers] this program cannot start worker processes",
                        "begin main() with: lockstep::Runtime runtime(argc, argv);");
}

Workers::~Workers() {
  // Kills all before the destructors wait for each.
  for (auto& [number, w] : state_->workers) w.process.kill();
}

uint32_t Workers::start(const Call<void>& task, const std::vector<int>& cores) {
  State& s = *state_;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(std::string("[workers] cannot make a socket for a new worker: ") +
                std::strerror(errno));
  }
  Descriptor mine(ends[0]), theirs(ends[1]);
  ChildProcess process(
      {.arguments = {worker_argument}, .descriptors = {theirs.get(), s.memory.descriptor()}});
  theirs.close();
  const uint32_t number = s.next++;
  WorkerStart start;
  start.ticket = s.channel.admit(number);
  start.parent = getpid();
  start.cores = cores;
  start.memory_bytes = s.options.memory_bytes;
  start.environment = s.options.environment;
  try {
    send_start(mine.get(), encode(start));
  } catch (const InvalidArgument&) {
    throw;
  } catch (const Error&) {
    // It has ended already and will be reported as lost.
  }
  s.strangers.starts();
  s.workers.emplace(number, Worker{.process = std::move(process),
                                   .lifeline = std::move(mine),
                                   .task = task,
                                   .hello = TimeLimit(s.options.start_limit)});
  return number;
}

std::optional<WorkerEvent> Workers::wait(const TimeLimit& limit, int also) {
  State& s = *state_;
  for (;;) {
    s.take_messages();
    s.find_lost();
    if (s.look.reached()) {
      for (auto& [number, w] : s.workers) s.look_at(w);
      s.oom_kills.look();
      s.look = TimeLimit(kLookAtEnds);
    }
    if (!s.events.empty()) {
      WorkerEvent event = std::move(s.events.front());
      s.events.pop_front();
      return event;
    }
    pollfd called{also, POLLIN, 0};
    if (limit.reached() || (also >= 0 && poll(&called, 1, 0) > 0)) return std::nullopt;
    std::vector<int> descriptors;
    if (also >= 0) descriptors.push_back(also);
    for (const auto& [number, w] : s.workers) descriptors.push_back(w.process.ended_descriptor());
    s.channel.wait(TimeLimit(std::min(limit.left(), s.look.left() + 0.001)), descriptors);
  }
}

void Workers::kill(uint32_t worker, const std::string& reason) {
  const auto found = state_->workers.find(worker);
  if (found == state_->workers.end()) return;
  if (found->second.reason.empty()) found->second.reason = reason;
  found->second.process.kill();
}

bool Workers::present(uint32_t worker) const { return state_->workers.count(worker) > 0; }

pid_t Workers::pid(uint32_t worker) const { return state_->workers.at(worker).process.pid(); }

int64_t Workers::strangers() {
  const ChannelServer::Refusals refused = state_->channel.refusals();
  return refused.keys + state_->strangers.count(refused.handshakes);
}

}  // namespace lockstep
