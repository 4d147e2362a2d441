// A pool of worker processes of this machine. Orders and reports go through memory that client and
// worker share; one thread takes reports and hands out what waits, another starts processes and
// hears of their ends.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/thread_pool.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/process_seat.h"
#include "lockstep/parallel/process/workers.h"

namespace lockstep::detail {
namespace {

using Clock = TimeLimit::Clock;

// Workers whose tasks are shorter on average get up to so many ahead of time.
constexpr double kShort = 1e-3;
constexpr size_t kAhead = 32;
// So many processes in a row may end before they are ready; the first few are replaced at once, the
// others more and more slowly.
constexpr int kFailedStarts = 10, kAtOnce = 3;

template <class F>
std::thread quiet_thread(F body) {
  return std::thread([body = std::move(body)] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are for the program's own threads
    body();
  });
}

class ProcessSeats final : public PoolCore {
 public:
  explicit ProcessSeats(const ProcessPoolOptions& options)
      : options_(options),
        bell_memory_(memory_.map(bell_place_ = memory_.reserve(sizeof(Bell)))),
        bell_(*std::launder(reinterpret_cast<Bell*>(bell_memory_.get()))),
        called_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!Runtime::present()) {
      throw InvalidArgument("[pool] this program cannot start worker processes",
                            "begin main() with: lockstep::Runtime runtime(argc, argv);");
    }
    resize(options.workers);
    warden_ = quiet_thread([this] { watch_processes(); });
    clerk_ = quiet_thread([this] { take_reports(); });
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
      seat->retiring = true;
      take_back(*seat);
    }
    work_came();
  }

  bool processes() const override { return true; }

  bool send_to(int index, uint64_t queue, std::span<const std::byte> message,
               const TimeLimit& limit) override {
    Bytes content(sizeof queue + message.size());
    std::memcpy(content.data(), &queue, sizeof queue);
    if (!message.empty()) {
      std::memcpy(content.data() + sizeof queue, message.data(), message.size());
    }
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        Seat* const seat = seat_of(index);
        if (seat == nullptr || seat->lost || seat->ending) return false;
        if (seat->orders->flush()) {
          say(*seat, Order::message, content);
          return true;
        }
      }
      if (limit.reached()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  SharedMemory& memory() override { return memory_; }
  void room() override { bell_.ring(); }

  std::vector<PoolCore::Seat> seats() override {
    const std::lock_guard lock(mutex);
    std::vector<PoolCore::Seat> all;
    for (int i = 0; i < wanted_; ++i) {
      const Seat* const seat = seat_of(i);
      if (seat == nullptr) {
        all.push_back({});
      } else {
        all.push_back(
            {seat->pid, seat->ready, seat->sent.empty() ? 0 : seat->sent[0].task->number});
      }
    }
    return all;
  }

 private:
  struct Sent {
    TaskPtr task;
    uint64_t order;
    Clock::time_point since;
  };

  struct Seat {
    int index = 0;
    uint32_t worker = 0;  // 0: not started yet
    pid_t pid = 0;
    SharedPlace place;
    SharedRegion region;
    SeatHead* head = nullptr;
    std::optional<MessageWriter> orders;
    std::optional<MessageReader> reports;
    std::optional<Bytes> held;  // a message that its inbox has no room for
    bool ready = false, retiring = false, ending = false;
    std::optional<std::string> lost;  // how, once the process has ended
    Descriptor diary;
    std::deque<Sent> sent;  // the first one runs
    uint64_t next_order = 0;
    double mean_seconds = 1;  // of its tasks
    std::optional<TimeLimit> grace, limit;
  };

  // For the thread that has the processes.
  struct Request {
    bool start = false;
    int index = 0;        // of the seat to start for
    uint32_t worker = 0;  // to kill
    std::string reason;
    SeatTicket ticket;
  };

  Seat* seat_of(int index) const {
    for (const auto& seat : seats_) {
      if (seat->index == index && !seat->retiring) return seat.get();
    }
    return nullptr;
  }

  void open_seat(int index) {
    auto seat = std::make_unique<Seat>();
    seat->index = index;
    seat->place = memory_.reserve(seat_bytes());
    seat->region = memory_.map(seat->place);
    seat->head = &head_of(seat->region);
    seat->orders.emplace(orders_of(seat->region));
    seat->reports.emplace(reports_of(seat->region));
    const bool spin = wanted_ * options_.threads < available_cores();
    call({.start = true,
          .index = index,
          .worker = 0,
          .reason = {},
          .ticket = {seat->place, bell_place_, index, spin}});
    seats_.push_back(std::move(seat));
  }

  void call(Request c) {
    calls_.push_back(std::move(c));
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(called_.get(), &one, sizeof one);
  }

  void end_process(Seat& seat, const std::string& reason) {
    if (seat.worker == 0 || seat.ending) return;
    seat.ending = true;
    call({.start = false, .index = 0, .worker = seat.worker, .reason = reason, .ticket = {}});
  }

  // ---- orders, with the mutex held ----

  void work_came() override {
    if (stopping()) return;
    hand_out();
    if (queued() == 0) rebalance();
    for (const auto& seat : seats_) {
      if (seat->retiring && seat->sent.empty()) end_process(*seat, "");
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
      const size_t ahead =
          seat->mean_seconds < kShort ? std::min(kAhead, queued() / seats_.size()) : 0;
      if (seat->sent.size() > ahead || !any_queued(seat->index, seat->retiring)) continue;
      if (best == nullptr || seat->sent.size() < best->sent.size()) best = seat.get();
    }
    return best;
  }

  void say(Seat& seat, Order what, std::span<const std::byte> rest) {
    Bytes message(1 + rest.size());
    message[0] = static_cast<std::byte>(what);
    std::memcpy(message.data() + 1, rest.data(), rest.size());
    seat.orders->push(message);
    seat.head->orders_wait = seat.orders->flush() ? 0 : 1;
    seat.head->bell.ring();
  }

  void give(Seat& seat, TaskPtr task) {
    TaskOrder order{.order = seat.next_order++,
                    .task = task->number,
                    .seed = task->options.seed,
                    .workers = wanted_,
                    .function = task->function,
                    .arguments = task->arguments};
    say(seat, Order::task, encode(order));
    seat.sent.push_back({std::move(task), order.order, Clock::now()});
    if (seat.sent.size() == 1) begin_first(seat);
  }

  void begin_first(Seat& seat) {
    Sent& first = seat.sent.front();
    first.since = Clock::now();
    first.task->state = TaskState::running;
    first.task->worker = seat.index;
    ++first.task->attempts;
    seat.limit.reset();
    if (first.task->options.limit > 0) seat.limit.emplace(first.task->options.limit);
    // It was cancelled while it was on its way.
    if (first.task->cancelling) stop_first(seat);
  }

  // Takes back what a worker has not begun.
  void take_back(Seat& seat) {
    uint64_t next = seat.head->next.load();
    while (!seat.head->next.compare_exchange_weak(next, seat.next_order)) {
    }
    while (!seat.sent.empty() && seat.sent.back().order >= next) {
      const TaskPtr task = std::move(seat.sent.back().task);
      seat.sent.pop_back();
      if (task->state == TaskState::running) --task->attempts;
      task->cancelling ? end_as_cancelled(task) : put_back(task);
    }
  }

  // Whoever is free gets what others have ahead of time.
  void rebalance() {
    const auto free = [](const auto& seat) {
      return seat->ready && !seat->retiring && !seat->lost && seat->sent.empty();
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
        if (&sent == &seat->sent.front() && seat->head->next.load() > sent.order) {
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
    seat.head->cancelled = seat.sent.front().order + 1;
    seat.head->bell.ring();
    seat.grace.emplace(options_.grace);
    bell_.ring();  // the clerk has a new moment to wait for
  }

  std::string running_diary(const TaskPtr& task) override {
    const Seat* const seat = seat_of(task->worker);
    if (seat == nullptr || seat->sent.empty() || seat->sent.front().task != task) return {};
    return read_diary(seat->diary.get());
  }

  // ---- reports ----

  void take_reports() {
    std::unique_lock lock(mutex);
    while (!ended_) {
      const uint32_t seen = bell_.rings();
      for (size_t i = 0; i < seats_.size(); ++i) drain(*seats_[i]);
      for (size_t i = 0; i < seats_.size();) {
        Seat& seat = *seats_[i];
        if (seat.lost && !seat.held) {
          bury(seat);
          memory_.free(seat.place);
          const bool replace = !seat.retiring && !stopping();
          const int index = seat.index;
          seats_.erase(seats_.begin() + static_cast<std::ptrdiff_t>(i));
          if (replace) reopen_.emplace_back(index, TimeLimit(delay()));
        } else {
          ++i;
        }
      }
      double wait = reopen_seats();
      work_came();
      for (const auto& seat : seats_) wait = std::min(wait, look_after(*seat));
      if (ended_) break;
      lock.unlock();
      bell_.wait(seen, TimeLimit(wait));
      lock.lock();
    }
  }

  double delay() const {
    return failed_starts_ < kAtOnce ? 0
                                    : 0.1 * static_cast<double>(1 << (failed_starts_ - kAtOnce));
  }

  // Replaces those whose time has come; seconds until the next one's.
  double reopen_seats() {
    double wait = 1;
    for (size_t i = 0; i < reopen_.size();) {
      const auto [index, when] = reopen_[i];
      if (!when.reached()) {
        wait = std::min(wait, when.left() + 1e-3);
        ++i;
        continue;
      }
      reopen_.erase(reopen_.begin() + static_cast<std::ptrdiff_t>(i));
      if (!stopping() && index < wanted_ && !seat_of(index)) open_seat(index);
    }
    return wait;
  }

  // Takes what has come, as far as queues have room.
  void drain(Seat& seat) {
    if (seat.head->orders_wait.load() != 0) {
      if (seat.orders->flush()) seat.head->orders_wait = 0;
      seat.head->bell.ring();
    }
    try {
      for (;;) {
        if (seat.held) {
          if (!deliver_held(seat)) break;
          continue;
        }
        auto message = seat.reports->next(kMostMessage);
        if (!message) break;
        take(seat, std::move(*message));
      }
    } catch (const Error& e) {
      // It wrote where it should not have.
      end_process(seat, std::string("sent what cannot be read (") + e.what() + ")");
      seat.held.reset();
    }
    if (seat.reports->took()) seat.head->bell.ring();
  }

  bool deliver_held(Seat& seat) {
    uint64_t inbox = 0;
    if (seat.held->size() < sizeof inbox) throw DataError("[pool] a message to nobody");
    std::memcpy(&inbox, seat.held->data(), sizeof inbox);
    Bytes message(seat.held->begin() + sizeof inbox, seat.held->end());
    if (!deliver(inbox, message)) return false;
    seat.held.reset();
    return true;
  }

  void take(Seat& seat, Bytes message) {
    if (message.empty()) throw DataError("[pool] an empty report");
    const auto what = static_cast<Report>(message.front());
    const auto rest = std::span<const std::byte>(message).subspan(1);
    if (what == Report::message) {
      seat.held.emplace(rest.begin(), rest.end());
    } else if (what == Report::ready) {
      const auto note = decode<ReadyNote>(rest);
      const std::string path =
          "/proc/" + std::to_string(seat.pid) + "/fd/" + std::to_string(note.diary);
      seat.diary = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      seat.ready = true;
      failed_starts_ = 0;
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

  // What became of its tasks, when a process has ended.
  void bury(Seat& seat) {
    const uint64_t next = seat.head->next.load();
    while (!seat.sent.empty() && seat.sent.back().order >= next) {
      const TaskPtr task = std::move(seat.sent.back().task);
      seat.sent.pop_back();
      if (task->state == TaskState::running) --task->attempts;
      task->cancelling || stopping() ? end_as_cancelled(task) : put_back(task);
    }
    if (!seat.sent.empty()) {
      const TaskPtr task = seat.sent.front().task;
      task->diary = read_diary(seat.diary.get());
      if (task->cancelling || stopping()) {
        end_as_cancelled(task);
      } else if (task->attempts <= task->options.retries) {
        put_back(task);
      } else {
        fail(task,
             {"WorkerLost",
              "[pool] worker " + std::to_string(seat.index) + " (process " +
                  std::to_string(seat.pid) + ") " + *seat.lost + " while it ran " + describe(task),
              ""});
      }
    }
    seat.sent.clear();
    if (!seat.ready && !seat.retiring && !stopping() && ++failed_starts_ >= kFailedStarts) {
      failed_starts_ = kFailedStarts - 1;
      // Nothing can run: everybody who waits hears why.
      for (int i = 0; i < wanted_; ++i) {
        while (const TaskPtr task = take_next(i)) {
          fail(task, {"WorkerLost", "[pool] workers end before they are ready: " + *seat.lost, ""});
        }
      }
    }
  }

  // Ends who does not stop; seconds until it has to be looked at again.
  double look_after(Seat& seat) {
    if (seat.sent.empty()) return 1;
    Task& task = *seat.sent.front().task;
    if (seat.limit && seat.limit->reached() && !task.cancelling) {
      task.cancelling = true;
      task.why = " ran for longer than its limit of " +
                 std::to_string(static_cast<int64_t>(task.options.limit)) + " s";
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

  void stop_seats(std::unique_lock<std::mutex>& lock) override {
    for (const auto& seat : seats_) {
      for (const Sent& sent : seat->sent) end_as_cancelled(sent.task);
      seat->sent.clear();
    }
    ended_ = true;
    bell_.ring();
    call({});
    lock.unlock();
    clerk_.join();
    warden_.join();
    lock.lock();
    seats_.clear();
  }

  // ---- processes ----

  void watch_processes() {
    WorkerOptions workers_options;
    workers_options.memory_bytes = options_.memory_bytes;
    workers_options.environment = options_.environment;
    Workers workers(memory_, workers_options);
    std::map<uint32_t, int> begun;
    for (;;) {
      std::vector<Request> calls;
      {
        const std::lock_guard lock(mutex);
        if (ended_) return;
        calls = std::exchange(calls_, {});
        uint64_t rung = 0;
        [[maybe_unused]] const ssize_t n = read(called_.get(), &rung, sizeof rung);
      }
      for (const Request& c : calls) {
        if (c.start) {
          start(workers, c);
        } else {
          workers.kill(c.worker, c.reason);
        }
      }
      const auto event = workers.wait(TimeLimit(1), called_.get());
      if (!event || event->kind == WorkerEvent::Kind::message) continue;
      const std::string how = event->kind == WorkerEvent::Kind::failed ? event->error.message
                              : event->how.empty()                     ? "has ended"
                                                                       : event->how;
      const std::lock_guard lock(mutex);
      for (const auto& seat : seats_) {
        if (seat->worker == event->worker) seat->lost = how;
      }
      bell_.ring();
    }
  }

  void start(Workers& workers, const Request& c) {
    uint32_t number = 0;
    std::string why;
    try {
      number = workers.start(make_call<&serve_pool>(c.ticket),
                             cores_of_worker(c.index, options_.workers, options_.threads));
    } catch (const Error& e) {
      why = e.what();
    }
    const std::lock_guard lock(mutex);
    for (const auto& seat : seats_) {
      if (seat->place.offset != c.ticket.seat.offset) continue;
      seat->worker = number;
      if (number == 0) {
        seat->lost = "could not be started (" + why + ")";
        bell_.ring();
      } else {
        seat->pid = workers.pid(number);
        if (seat->retiring) end_process(*seat, "");
      }
    }
  }

  const ProcessPoolOptions options_;
  SharedMemory memory_{"lockstep-pool"};
  SharedPlace bell_place_;
  SharedRegion bell_memory_;
  Bell& bell_;  // rung for the clerk
  Descriptor called_;
  int wanted_ = 0, failed_starts_ = 0;
  bool ended_ = false;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<Request> calls_;
  std::vector<std::pair<int, TimeLimit>> reopen_;  // seats whose processes were lost, and when
  std::thread warden_, clerk_;
};

}  // namespace

std::shared_ptr<PoolCore> make_process_pool(const ProcessPoolOptions& options) {
  return std::make_shared<ProcessSeats>(options);
}

}  // namespace lockstep::detail
