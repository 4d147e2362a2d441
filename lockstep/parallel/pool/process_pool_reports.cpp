// What workers report, and what becomes of the tasks of those that are lost: see
// process_pool_core.h.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/process_pool_core.h"

namespace lockstep::detail {
namespace {

using Clock = TimeLimit::Clock;

// Reports of one worker that are taken before others have their turn.
constexpr int kReportsAtATime = 256;
// So many workers may end with a task that they were given and have not begun.
constexpr int kLostBefore = 3;

}  // namespace

void ProcessSeats::take_reports() {
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

void ProcessSeats::reopen_seats() {
  for (const int index : restarts_.take_due()) {
    if (index >= wanted_ || seat_of(index)) continue;
    try {
      open_seat(index);
    } catch (const std::exception& e) {
      start_failed(index, {.how = e.what()});
    }
  }
}

void ProcessSeats::start_failed(int index, const WorkerEnd& end) {
  const bool often = restarts_.plan_after_failure(index, end.outside) || end.hopeless;
  // Of another host the reason is told at once: it seldom goes away by itself.
  if (!often && !links_.far(index)) return;
  const TaskError error{"WorkerLost", "[pool] workers end before they are ready: " + end.how,
                        end.hint};
  fail_queued(index, error);
  if (!often) return;
  const bool some = std::any_of(seats_.begin(), seats_.end(),
                                [](const auto& seat) { return seat->ready && !seat->retiring; });
  if (!some) fail_all_queued(error);
}

void ProcessSeats::fail_what_nobody_takes() {
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

bool ProcessSeats::drain(Seat& seat) {
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

bool ProcessSeats::deliver_held(Seat& seat) {
  const bool last = seat.lost || seat.ending || stopping();
  if (!deliver(seat.held->queue, seat.held->content, last)) return false;
  seat.held.reset();
  return true;
}

void ProcessSeats::take(Seat& seat, std::span<const std::byte> rest) {
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

void ProcessSeats::end_first(Seat& seat, Report what, EndNote note) {
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

void ProcessSeats::bury(Seat& seat) {
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
                                   seat.pid, seat.lost->how, when, task->number),
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

double ProcessSeats::look_after(Seat& seat) {
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

void ProcessSeats::drain_messages(Seat& seat) {
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

void ProcessSeats::stop_seats(std::unique_lock<std::mutex>& lock) {
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

}  // namespace lockstep::detail
