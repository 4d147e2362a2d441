// A pool of worker processes of this machine. Orders and reports go through memory that client and
// worker share; one thread takes reports and hands out what waits, another starts processes and
// hears of their ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "lockstep/base/cores.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/parallel/pool/client_seat.h"
#include "lockstep/parallel/pool/host_links.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/process_seat.h"
#include "lockstep/parallel/pool/process_warden.h"
#include "lockstep/parallel/pool/restarts.h"

namespace lockstep::detail {
namespace {

using Clock = TimeLimit::Clock;

// Workers whose tasks are shorter on average get up to so many ahead of time.
constexpr double kShort = 1e-3;
constexpr size_t kAhead = 32;
// Reports of one worker that are taken before others have their turn.
constexpr int kReportsAtATime = 256;
// So many workers may end with a task that they were given and have not begun.
constexpr int kLostBefore = 3;
// Bytes of messages for tasks that wait at a worker.
constexpr uint64_t kMostMessages = uint64_t{256} << 10;

class ProcessSeats final : public PoolCore {
 public:
  explicit ProcessSeats(const ProcessPoolOptions& options)
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
  ~ProcessSeats() override { stop(); }

  int size() override {
    const std::lock_guard lock(mutex);
    return wanted_;
  }

  void resize(int workers) override {
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

  bool send_to(int index, uint64_t queue, std::span<const std::byte> message,
               const TimeLimit& limit) override {
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
  bool send_to(const TaskPtr& task, uint64_t queue, std::span<const std::byte> message) override {
    const std::lock_guard lock(mutex);
    Seat* const seat = seat_that_runs(task);
    return seat != nullptr && post(*seat, with_prefix(queue, message));
  }
  HostMemory* hosts() override { return options_.hosts.empty() ? nullptr : &links_; }
  int64_t strangers() const override { return strangers_.load() + far_strangers_.load(); }
  SharedMemory& memory() override { return memory_; }
  void room() override { bell_.ring(); }

  std::vector<WorkerStatus> seats() override {
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

 private:
  using Seat = ClientSeat;
  using Sent = SentTask;

  Seat* seat_of(int index) const {
    for (const auto& seat : seats_) {
      if (seat->index == index && !seat->retiring) return seat.get();
    }
    return nullptr;
  }

  Seat* seat_that_runs(const TaskPtr& task) const {
    for (const auto& seat : seats_) {
      if (!seat->sent.empty() && seat->sent.front().task == task) return seat.get();
    }
    return nullptr;
  }

  // False where nobody will take it.
  static bool post(Seat& seat, const Bytes& message) {
    if (seat.lost || seat.ending) return false;
    seat.messages_said += message.size();
    seat.say(Order::message, message);
    return true;
  }

  void open_seat(int index) {
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

  void end_process(Seat& seat, const std::string& reason) {
    if (seat.worker == 0 || seat.ending) return;
    seat.ending = true;
    seat.far ? links_.kill(seat.worker, reason) : warden_.kill(seat.worker, reason);
  }

  // ---- orders, with the mutex held ----

  int wanted() const override { return wanted_; }

  void file_came(const std::string& name) override {
    for (const auto& seat : seats_) tell_of_file(*seat, name);
  }

  // Before all tasks that are given after it.
  void tell_of_file(Seat& seat, const std::string& name) {
    seat.say(Order::file, encode(std::pair(name, files().at(name))));
  }

  void work_came() override {
    if (stopping()) return;
    hand_out();
    rebalance();
    for (const auto& seat : seats_) {
      const bool idle = seat->sent.empty() && !any_queued(seat->index, true);
      if (seat->retiring && idle) end_process(*seat, "");
    }
  }

  void hand_out() {
    while (Seat* const seat = seat_for_more()) give(*seat, take_next(seat->index, seat->retiring));
  }

  // Who gets the next task: the one with the fewest, if any may have another.
  Seat* seat_for_more() const {
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

  void give(Seat& seat, TaskPtr task) {
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

  void begin_first(Seat& seat) {
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

  // Takes back what a worker has not begun.
  void take_back(Seat& seat) {
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

  // Whoever is free gets what others have ahead of time.
  void rebalance() {
    const auto free = [&](const auto& seat) {
      return seat->ready && !seat->retiring && !seat->lost && !seat->ending && seat->sent.empty() &&
             !any_queued(seat->index);
    };
    if (std::none_of(seats_.begin(), seats_.end(), free)) return;
    bool some = false;
    for (const auto& seat : seats_) {
      // One that waits behind a short one is begun sooner than anybody else could.
      const bool busy = seat->sent.size() > 2 ||
                        (seat->sent.size() == 2 && Clock::now() - seat->sent[0].since >
                                                       std::chrono::duration<double>(kShort));
      if (!busy) continue;
      take_back(*seat);
      some = true;
    }
    if (some) hand_out();
  }

  void stop_running(const TaskPtr& task) override {
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

  void stop_first(Seat& seat) {
    seat.head.cancelled = seat.sent.front().order + 1;
    seat.ring();
    seat.grace.emplace(options_.grace);
    bell_.ring();  // the clerk has a new moment to wait for
  }

  bool end_process_of(const TaskPtr& task, const std::string& reason) override {
    Seat* const seat = seat_that_runs(task);
    if (seat == nullptr || !seat->begun(seat->sent.front())) return false;
    end_process(*seat, reason);
    return true;
  }

  std::string running_diary(const TaskPtr& task) override {
    const Seat* const seat = seat_that_runs(task);
    return seat == nullptr ? "" : read_diary(seat->diary.get());
  }

  // ---- reports ----

  void take_reports() {
    std::unique_lock lock(mutex);
    while (!stopping()) {
      const uint32_t seen = bell_.rings();
      bool more = false;
      for (const auto& seat : seats_) {
        while (drain(*seat)) {
          if (seat->lost) continue;  // nothing comes any more
          more = true;
          break;
        }
      }
      for (size_t i = 0; i < seats_.size();) {
        if (seats_[i]->lost && !seats_[i]->held) {
          bury(*seats_[i]);
          seats_.erase(seats_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      reopen_seats();
      fail_what_nobody_takes();
      work_came();
      double wait = restarts_.wait(1);
      for (const auto& seat : seats_) wait = std::min(wait, look_after(*seat));
      lock.unlock();
      if (more) {
        std::this_thread::yield();  // others want the mutex
      } else {
        bell_.wait(seen, TimeLimit(wait));
      }
      lock.lock();
    }
  }

  void reopen_seats() {
    for (const int index : restarts_.take_due()) {
      if (index >= wanted_ || seat_of(index)) continue;
      try {
        open_seat(index);
      } catch (const std::exception& e) {
        start_failed(index, e.what());
      }
    }
  }

  // Somebody who waits for a worker that cannot be started hears why.
  void start_failed(int index, const std::string& how) {
    if (!restarts_.plan_after_failure(index)) return;
    const TaskError error{"WorkerLost", "[pool] workers end before they are ready: " + how, ""};
    fail_queued(index, error);
    const bool some = std::any_of(seats_.begin(), seats_.end(),
                                  [](const auto& seat) { return seat->ready && !seat->retiring; });
    if (!some) fail_all_queued(error);
  }

  // Tasks for workers that are no more, or all, when no process can be started any more.
  void fail_what_nobody_takes() {
    if (!broken_.empty()) fail_all_queued({"WorkerLost", "[pool] " + broken_, ""});
    for (const int index : pinned_seats()) {
      const bool there =
          index < wanted_ || std::any_of(seats_.begin(), seats_.end(),
                                         [&](const auto& seat) { return seat->index == index; });
      if (there) continue;
      fail_queued(index, {"WorkerLost",
                          "[pool] worker " + std::to_string(index) + " is no more: the pool has " +
                              std::to_string(wanted_) + " now",
                          ""});
    }
  }

  // Takes what has come, as far as queues have room, but not too much at a time; whether there may
  // be more.
  bool drain(Seat& seat) {
    if (seat.broken) return false;
    bool more = false;
    try {
      seat.say_more();
      for (int taken = 0;; ++taken) {
        if (seat.held && !deliver_held(seat)) break;
        if (taken == kReportsAtATime) {
          more = true;
          break;
        }
        const auto message = seat.reports.next();
        if (!message) break;
        take(seat, *message);
      }
    } catch (const std::exception& e) {
      // It wrote where it should not have, or more than there is memory for.
      seat.broken = true;
      seat.held.reset();
      end_process(seat, std::string("sent what cannot be read (") + e.what() + ")");
      return false;
    }
    if (seat.reports.took()) seat.ring();
    return more;
  }

  // What was accepted from somebody who ends now goes beyond the queue's bound.
  bool deliver_held(Seat& seat) {
    const bool last = seat.lost || seat.ending || stopping();
    if (!deliver(seat.held->queue, seat.held->content, last)) return false;
    seat.held.reset();
    return true;
  }

  void take(Seat& seat, std::span<const std::byte> rest) {
    const auto what = take_prefix<Report>(rest);
    if (what == Report::message) {
      const auto queue = take_prefix<uint64_t>(rest);
      seat.held = QueueMessage{queue, Bytes(rest.begin(), rest.end())};
    } else if (what == Report::ready) {
      const auto note = decode<ReadyNote>(rest);
      const std::string path =
          "/proc/" + std::to_string(seat.pid) + "/fd/" + std::to_string(note.diary);
      if (!seat.far) seat.diary = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
      seat.ready = true;
      restarts_.succeeded(seat.index);
    } else {
      end_first(seat, what, decode<EndNote>(rest));
    }
  }

  void end_first(Seat& seat, Report what, EndNote note) {
    if (seat.sent.empty() || seat.sent.front().order != note.order) {
      throw DataError("[pool] the end of a task that it was not given");
    }
    const Sent first = std::move(seat.sent.front());
    seat.sent.pop_front();
    const double seconds = std::chrono::duration<double>(Clock::now() - first.since).count();
    seat.mean_seconds += (seconds - seat.mean_seconds) / 8;
    seat.grace.reset();
    seat.limit.reset();
    first.task->diary = std::move(note.diary);
    if (what == Report::finished) {
      finish(first.task, std::move(note.result));
    } else {
      fail(first.task, std::move(note.error));
    }
    if (!seat.sent.empty()) begin_first(seat);
  }

  // What becomes of its tasks, when a process has ended, and who takes its place.
  void bury(Seat& seat) {
    const uint64_t next = seat.head.next.load();
    const bool gone = stopping();
    for (; !seat.sent.empty(); seat.sent.pop_back()) {
      const Sent& sent = seat.sent.back();
      const TaskPtr task = sent.task;
      const bool first = &sent == &seat.sent.front(), begun = sent.order < next;
      if (first && begun) task->diary = seat.far ? seat.printed : read_diary(seat.diary.get());
      const auto lost = [&](const char* when) {
        return TaskError{"WorkerLost",
                         fmt::format("[pool] worker {} (process {}) {} {} task {}", seat.index,
                                     seat.pid, *seat.lost, when, task->number),
                         ""};
      };
      if (task->cancelling || gone) {
        end_as_cancelled(task);
      } else if (!begun) {
        if (task->state == TaskState::running) --task->attempts;
        if (first && seat.ready && ++task->lost_before >= kLostBefore) {
          fail(task, lost("before it could begin"));
        } else {
          put_back(task);
        }
      } else if (task->attempts <= task->options.retries) {
        put_back(task);
      } else {
        task->lost = *seat.lost;
        fail(task, lost("while it ran"));
      }
    }
    memory_.free(seat.place);
    if (seat.retiring || gone) return;
    if (seat.ready) {
      restarts_.plan(seat.index);
    } else {
      start_failed(seat.index, *seat.lost);
    }
  }

  // Ends who does not stop; seconds until it has to be looked at again.
  double look_after(Seat& seat) {
    if (seat.sent.empty()) return 1;
    forget_diary(seat.diary.get());
    Task& task = *seat.sent.front().task;
    if (seat.limit && seat.limit->reached() && !task.cancelling) {
      task.cancelling = true;
      task.why = past_limit(task);
      stop_first(seat);
    }
    if (seat.grace && seat.grace->reached()) {
      end_process(seat, "did not stop when it was told to");
      return 1;
    }
    double wait = 1;
    if (seat.grace) wait = std::min(wait, seat.grace->left());
    if (seat.limit && !task.cancelling) wait = std::min(wait, seat.limit->left());
    return wait + 1e-3;
  }

  // What queues have accepted, when nobody says anything any more; tasks have ended.
  void drain_messages(Seat& seat) {
    try {
      while (!seat.broken) {
        if (seat.held) deliver_held(seat);
        const auto message = seat.reports.next();
        if (!message) return;
        std::span<const std::byte> rest = *message;
        if (take_prefix<Report>(rest) == Report::message) take(seat, *message);
      }
    } catch (const std::exception&) {
      // It was ended in the middle of it, or wrote where it should not have.
    }
  }

  void stop_seats(std::unique_lock<std::mutex>& lock) override {
    for (const auto& seat : seats_) {
      for (const Sent& sent : seat->sent) end_as_cancelled(sent.task);
      seat->sent.clear();
    }
    bell_.ring();
    lock.unlock();
    if (clerk_.joinable()) clerk_.join();
    warden_.stop();
    links_.stop();
    memory_.on_free(nullptr);
    lock.lock();
    for (const auto& seat : seats_) drain_messages(*seat);
    seats_.clear();
  }

  // ---- processes: what the warden's thread tells ----

  WardenReports reports() {
    return {
        .started =
            [this](const SeatTicket& ticket, uint32_t worker, pid_t pid, const std::string& why) {
              const std::lock_guard lock(mutex);
              for (const auto& seat : seats_) {
                if (seat->place.offset != ticket.seat.offset) continue;
                seat->worker = worker;
                seat->pid = pid;
                if (worker == 0) seat->lost = "could not be started (" + why + ")";
              }
              work_came();
              bell_.ring();
            },
        .ended =
            [this](uint32_t worker, const std::string& how) {
              const std::lock_guard lock(mutex);
              for (const auto& seat : seats_) {
                if (seat->worker == worker) seat->lost = how;
              }
              bell_.ring();
            },
        .failed =
            [this](const std::string& why) {
              const std::lock_guard lock(mutex);
              broken_ = "its workers cannot be reached: " + why;
              for (const auto& seat : seats_) seat->lost = broken_;
              wanted_ = 0;
              bell_.ring();
            },
        .refused = [this](int64_t strangers) { strangers_ = strangers; },
    };
  }

  HostLinks::Told told_by_hosts() {
    HostLinks::Told told{.reports = reports(),
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

  // Of the warden: what runs on this machine.
  ProcessPoolOptions own_options() const {
    ProcessPoolOptions own = options_;
    if (!options_.hosts.empty()) own.workers = 0;
    for (const PoolHost& host : options_.hosts) {
      if (host.name.empty()) own.workers = host.workers;
    }
    return own;
  }

  const ProcessPoolOptions options_;
  SharedMemory memory_{"lockstep-pool"};
  SharedPlace bell_place_;
  SharedRegion bell_memory_;
  Bell& bell_;  // rung for the clerk
  int wanted_ = 0;
  Restarts restarts_;
  std::string broken_;  // why there are no workers any more
  std::atomic<int64_t> strangers_{0}, far_strangers_{0};
  std::vector<std::unique_ptr<Seat>> seats_;
  ProcessWarden warden_{memory_, own_options(), reports()};
  HostLinks links_{memory_, bell_place_, options_, told_by_hosts()};
  std::thread clerk_;
};

}  // namespace

std::shared_ptr<PoolCore> make_process_pool(const ProcessPoolOptions& options) {
  if (!Runtime::present()) {
    throw InvalidArgument("[pool] this program cannot start worker processes",
                          "begin main() with: lockstep::Runtime runtime(argc, argv);");
  }
  return std::make_shared<ProcessSeats>(options);
}

}  // namespace lockstep::detail
