// What a pool of processes is asked for, and the orders that it gives: see process_pool_core.h.
#include "lockstep/parallel/pool/process_pool_core.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/parallel/process/resources.h"

namespace lockstep::detail {
namespace {

using Clock = TimeLimit::Clock;

// Workers whose tasks are shorter on average get up to so many ahead of time.
constexpr double kShort = 1e-3;
constexpr size_t kAhead = 32;
// Bytes of messages for tasks that wait at a worker.
constexpr uint64_t kMostMessages = uint64_t{256} << 10;

}  // namespace

ProcessSeats::ProcessSeats(const ProcessPoolOptions& options)
    : options_(options),
      bell_memory_(memory_.map(bell_place_ = memory_.reserve(sizeof(Bell)))),
      bell_(*std::launder(reinterpret_cast<Bell*>(bell_memory_.get()))) {
  try {
    resize(options.workers);
    memory_.on_free([this](const SharedPlace& place) { links_.forget(place); });
    warden_.begin();
    links_.begin();
    clerk_ = quiet_thread([this] { take_reports(); });
  } catch (...) {
    stop();
    throw;
  }
}

int ProcessSeats::size() {
  const std::lock_guard lock(mutex);
  return wanted_;
}

void ProcessSeats::resize(int workers) {
  const std::lock_guard lock(mutex);
  wanted_ = workers;
  for (int i = 0; i < workers; ++i) {
    if (!seat_of(i)) open_seat(i);
  }
  for (const auto& seat : seats_) {
    if (seat->index < workers) continue;
    seat->retiring = true;  // it ends when nothing is left for it
    take_back(*seat);
  }
  work_came();
}

bool ProcessSeats::send_to(int index, uint64_t queue, std::span<const std::byte> message,
                           const TimeLimit& limit) {
  const Bytes content = with_prefix(queue, message);
  for (;;) {
    {
      const std::lock_guard lock(mutex);
      Seat* const seat = seat_of(index);
      if (seat == nullptr) return false;
      const uint64_t waiting = seat->messages_said - seat->head.messages_taken.load();
      if (seat->lost || seat->ending || waiting < kMostMessages) return post(*seat, content);
    }
    if (limit.reached()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool ProcessSeats::send_to(const TaskPtr& task, uint64_t queue,
                           std::span<const std::byte> message) {
  const std::lock_guard lock(mutex);
  Seat* const seat = seat_that_runs(task);
  return seat != nullptr && post(*seat, with_prefix(queue, message));
}

std::vector<WorkerStatus> ProcessSeats::seats() {
  const std::lock_guard lock(mutex);
  std::vector<WorkerStatus> all;
  for (int i = 0; i < wanted_; ++i) {
    WorkerStatus& status = all.emplace_back();
    const Seat* const seat = seat_of(i);
    if (seat == nullptr) continue;
    status = {seat->pid, seat->ready, seat->sent.empty() ? 0 : seat->sent[0].task->number};
  }
  return all;
}

ClientSeat* ProcessSeats::seat_of(int index) const {
  for (const auto& seat : seats_) {
    if (seat->index == index && !seat->retiring) return seat.get();
  }
  return nullptr;
}

ClientSeat* ProcessSeats::seat_that_runs(const TaskPtr& task) const {
  for (const auto& seat : seats_) {
    if (!seat->sent.empty() && seat->sent.front().task == task) return seat.get();
  }
  return nullptr;
}

bool ProcessSeats::post(Seat& seat, const Bytes& message) {
  if (seat.lost || seat.ending) return false;
  seat.messages_said += message.size();
  seat.say(Order::message, message);
  return true;
}

void ProcessSeats::open_seat(int index) {
  auto seat = std::make_unique<Seat>(memory_, index);
  for (const auto& [name, path] : files()) tell_of_file(*seat, name);
  const bool spin = wanted_ * options_.threads < available_cores();
  const SeatTicket ticket{seat->place, bell_place_, index, links_.slot_of(index), spin};
  if (links_.far(index)) {
    seat->far = [this] { links_.ring(); };
    links_.start(ticket);
  } else {
    warden_.start(ticket);
  }
  seats_.push_back(std::move(seat));
}

void ProcessSeats::end_process(Seat& seat, const std::string& reason) {
  if (seat.worker == 0 || seat.ending) return;
  seat.ending = true;
  seat.far ? links_.kill(seat.worker, reason) : warden_.kill(seat.worker, reason);
}

void ProcessSeats::file_came(const std::string& name) {
  for (const auto& seat : seats_) tell_of_file(*seat, name);
}

void ProcessSeats::tell_of_file(Seat& seat, const std::string& name) {
  seat.say(Order::file, encode(std::pair(name, files().at(name))));
}

void ProcessSeats::work_came() {
  if (stopping()) return;
  hand_out();
  rebalance();
  for (const auto& seat : seats_) {
    const bool idle = seat->sent.empty() && !any_queued(seat->index, true);
    if (seat->retiring && idle) end_process(*seat, "");
  }
}

void ProcessSeats::hand_out() {
  while (Seat* const seat = seat_for_more()) give(*seat, take_next(seat->index, seat->retiring));
}

ClientSeat* ProcessSeats::seat_for_more() const {
  Seat* best = nullptr;
  for (const auto& seat : seats_) {
    if (!seat->ready || seat->lost || seat->ending) continue;
    // What is on its way to another host cannot be taken back.
    const bool may_wait = seat->mean_seconds < kShort && !seat->far;
    const size_t ahead = may_wait ? std::min(kAhead, queued() / seats_.size()) : 0;
    if (seat->sent.size() > ahead || !any_queued(seat->index, seat->retiring)) continue;
    if (best == nullptr || seat->sent.size() < best->sent.size()) best = seat.get();
  }
  return best;
}

void ProcessSeats::give(Seat& seat, TaskPtr task) {
  TaskOrder order{.order = seat.next_order++,
                  .task = task->number,
                  .seed = task->options.seed,
                  .workers = wanted_,
                  .function = task->function,
                  .arguments = task->arguments};
  seat.say(Order::task, encode(order));
  seat.sent.push_back({std::move(task), order.order, Clock::now()});
  if (seat.sent.size() == 1) begin_first(seat);
}

void ProcessSeats::begin_first(Seat& seat) {
  Sent& first = seat.sent.front();
  first.since = Clock::now();
  first.task->state = TaskState::running;
  first.task->worker = seat.index;
  first.task->pid = seat.pid;
  ++first.task->attempts;
  seat.grace.reset();
  seat.limit.reset();
  if (first.task->options.limit > 0) {
    seat.limit.emplace(first.task->options.limit);
    bell_.ring();  // the clerk has a new moment to wait for
  }
  // It was cancelled while it was on its way.
  if (first.task->cancelling) stop_first(seat);
}

void ProcessSeats::take_back(Seat& seat) {
  uint64_t next = seat.head.next.load();
  while (!seat.head.next.compare_exchange_weak(next, seat.next_order)) {
  }
  while (!seat.sent.empty() && seat.sent.back().order >= next) {
    const TaskPtr task = std::move(seat.sent.back().task);
    seat.sent.pop_back();
    if (task->state == TaskState::running) --task->attempts;
    task->cancelling ? end_as_cancelled(task) : put_back(task);
  }
  if (!seat.sent.empty()) return;
  seat.grace.reset();
  seat.limit.reset();
}

void ProcessSeats::rebalance() {
  const auto free = [&](const auto& seat) {
    return seat->ready && !seat->retiring && !seat->lost && !seat->ending && seat->sent.empty() &&
           !any_queued(seat->index);
  };
  if (std::none_of(seats_.begin(), seats_.end(), free)) return;
  bool some = false;
  for (const auto& seat : seats_) {
    // One that waits behind a short one is begun sooner than anybody else could.
    const bool busy = seat->sent.size() > 2 ||
                      (seat->sent.size() == 2 &&
                       Clock::now() - seat->sent[0].since > std::chrono::duration<double>(kShort));
    if (!busy) continue;
    take_back(*seat);
    some = true;
  }
  if (some) hand_out();
}

void ProcessSeats::stop_running(const TaskPtr& task) {
  for (const auto& seat : seats_) {
    for (const Sent& sent : seat->sent) {
      if (sent.task != task) continue;
      if (&sent == &seat->sent.front() && seat->begun(sent)) {
        stop_first(*seat);
      } else {
        take_back(*seat);  // unless it was begun meanwhile
        if (!seat->sent.empty() && seat->sent.front().task == task) stop_first(*seat);
        work_came();
      }
      return;
    }
  }
}

void ProcessSeats::stop_first(Seat& seat) {
  seat.head.cancelled = seat.sent.front().order + 1;
  seat.ring();
  seat.grace.emplace(options_.grace);
  bell_.ring();  // the clerk has a new moment to wait for
}

bool ProcessSeats::end_process_of(const TaskPtr& task, const std::string& reason) {
  Seat* const seat = seat_that_runs(task);
  if (seat == nullptr || !seat->begun(seat->sent.front())) return false;
  end_process(*seat, reason);
  return true;
}

std::string ProcessSeats::running_diary(const TaskPtr& task) {
  const Seat* const seat = seat_that_runs(task);
  return seat == nullptr ? "" : read_diary(seat->diary.get());
}

WardenReports ProcessSeats::reports() {
  return {
      .started =
          [this](const SeatTicket& ticket, uint32_t worker, pid_t pid, const std::string& why) {
            const std::lock_guard lock(mutex);
            for (const auto& seat : seats_) {
              if (seat->place.offset != ticket.seat.offset) continue;
              seat->worker = worker;
              seat->pid = pid;
              if (worker == 0) seat->lost = WorkerEnd{.how = "could not be started (" + why + ")"};
            }
            work_came();
            bell_.ring();
          },
      .ended =
          [this](uint32_t worker, const WorkerEnd& end) {
            const std::lock_guard lock(mutex);
            for (const auto& seat : seats_) {
              if (seat->worker == worker) seat->lost = end;
            }
            bell_.ring();
          },
      .failed =
          [this](const std::string& why) {
            const std::lock_guard lock(mutex);
            broken_ = "its workers cannot be reached: " + why;
            for (const auto& seat : seats_) seat->lost = WorkerEnd{.how = broken_};
            wanted_ = 0;
            bell_.ring();
          },
      .refused = [this](int64_t strangers) { strangers_ = strangers; },
  };
}

HostsTold ProcessSeats::told_by_hosts() {
  HostsTold told{.reports = reports(),
                 .printed =
                     [this](uint32_t worker, std::string text) {
                       const std::lock_guard lock(mutex);
                       for (const auto& seat : seats_) {
                         if (seat->worker == worker) seat->printed = std::move(text);
                       }
                     },
                 .rung = [this] { bell_.ring(); }};
  told.reports.refused = [this](int64_t strangers) { far_strangers_ = strangers; };
  return told;
}

ProcessPoolOptions ProcessSeats::own_options() const {
  ProcessPoolOptions own = options_;
  if (!options_.hosts.empty()) own.workers = 0;
  for (const PoolHost& host : options_.hosts) {
    if (host.name.empty()) own.workers = host.workers;
  }
  return own;
}

std::shared_ptr<PoolCore> make_process_pool(const ProcessPoolOptions& options) {
  if (!Runtime::present()) {
    throw InvalidArgument("[pool] this program cannot start worker processes",
                          "begin main() with: lockstep::Runtime runtime(argc, argv);");
  }
  int here = options.hosts.empty() ? options.workers : 0, elsewhere = 0;
  for (const PoolHost& host : options.hosts) {
    host.name.empty() ? here = host.workers : ++elsewhere;
  }
  check_resources({.workers = here, .threads = options.threads, .hosts = elsewhere});
  return std::make_shared<ProcessSeats>(options);
}

}  // namespace lockstep::detail
