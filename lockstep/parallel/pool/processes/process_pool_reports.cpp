// Processing of workers' reports and of the tasks of lost workers: see process_pool_core.h.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/pool/processes/process_pool_core.h"

namespace lockstep::detail {
namespace {

using Clock = TimeLimit::Clock;

// Reports of one worker that are processed before those of the others.
constexpr int kReportsAtATime = 256;
// A task fails after this many workers have ended that were given it first and had not begun it.
constexpr int kLostBefore = 3;

}  // namespace

void ProcessSlots::take_reports() {
  const MutexLock lock(mutex);
  while (!stopping()) {
    const uint32_t seen = bell_.rings();
    bool more = false;
    for (Slot* const slot : slots_to_drain()) {
      while (drain(*slot)) {
        if (slot->lost) continue;  // process the rest; nothing arrives any more
        more = true;
        break;
      }
      if (!slot->far || (!slot->held && !more)) continue;
      const MutexLock rung(rung_mutex_);
      rung_.push_back(slot->range.offset);
    }
    std::set<const Slot*> ended;
    for (const auto& slot : slots_) {
      if (slot->lost && !slot->held) ended.insert(slot.get());
    }
    for (const auto& slot : slots_) {
      if (ended.count(slot.get()) > 0) bury(*slot);
    }
    std::erase_if(slots_, [&](const auto& slot) { return ended.count(slot.get()) > 0; });
    reopen_slots();
    fail_tasks_without_workers();
    work_came();
    double wait = restarts_.wait(1);
    for (const auto& slot : slots_) wait = std::min(wait, look_after(*slot));
    const MutexUnlock unlocked(mutex);
    if (more) {
      std::this_thread::yield();  // other threads wait for the mutex
    } else {
      bell_.wait(seen, TimeLimit(wait));
    }
  }
}

std::vector<WorkerSlot*> ProcessSlots::slots_to_drain() {
  std::vector<size_t> rung;
  {
    const MutexLock lock(rung_mutex_);
    rung = std::exchange(rung_, {});
  }
  std::sort(rung.begin(), rung.end());
  rung.erase(std::unique(rung.begin(), rung.end()), rung.end());
  std::vector<Slot*> all;
  // The last reports of a lost slot come before its end.
  for (const auto& slot : slots_) {
    if (!slot->far || slot->lost) all.push_back(slot.get());
  }
  for (const size_t offset : rung) {
    const auto found = by_offset_.find(offset);
    if (found != by_offset_.end() && !found->second->lost) all.push_back(found->second);
  }
  return all;
}

void ProcessSlots::reopen_slots() {
  for (const int index : restarts_.take_due()) {
    if (index >= wanted_ || slot_of(index)) continue;
    try {
      open_slot(index);
    } catch (const std::exception& e) {
      start_failed(index, start_failure(e));
    }
  }
}

void ProcessSlots::start_failed(int index, const WorkerEnd& end) {
  if (!restarts_.plan_after_failure(index, end.outside, end.hopeless)) return;
  const TaskError error{"WorkerLost", "[pool] workers end before they are ready: " + end.how,
                        end.hint};
  fail_queued(index, error);
  // Tasks for any worker wait as long as one is ready or may still start.
  for (int other = 0; other < wanted_; ++other) {
    if (!restarts_.given_up(other)) return;
  }
  fail_all_queued(error);
}

void ProcessSlots::fail_tasks_without_workers() {
  if (!broken_.empty()) fail_all_queued({"WorkerLost", "[pool] " + broken_, ""});
  for (const int index : pinned_slots()) {
    const bool there =
        index < wanted_ || std::any_of(slots_.begin(), slots_.end(),
                                       [&](const auto& slot) { return slot->index == index; });
    if (there) continue;
    fail_queued(index,
                {"WorkerLost",
                 "[pool] worker " + std::to_string(index) + " was removed: the pool now has " +
                     std::to_string(wanted_) + " workers",
                 ""});
  }
}

bool ProcessSlots::drain(Slot& slot) {
  if (slot.broken) return false;
  bool more = false;
  try {
    slot.send_waiting();
    for (int taken = 0;; ++taken) {
      if (slot.held && !deliver_held(slot)) break;
      if (taken == kReportsAtATime) {
        more = true;
        break;
      }
      const auto message = slot.reports.next();
      if (!message) break;
      take(slot, *message);
    }
  } catch (const std::exception& e) {
    // It wrote invalid data, or more than there is memory for.
    slot.broken = true;
    slot.held.reset();
    end_process(slot, std::string("sent an invalid message (") + e.what() + ")");
    return false;
  }
  if (slot.reports.took()) slot.ring();
  return more;
}

bool ProcessSlots::deliver_held(Slot& slot) {
  const bool last = slot.lost || slot.ending || stopping();
  if (!deliver(slot.held->queue, slot.held->content, last)) return false;
  slot.held.reset();
  return true;
}

void ProcessSlots::take(Slot& slot, std::span<const std::byte> rest) {
  const auto what = take_prefix<Report>(rest);
  if (what == Report::message) {
    const auto queue = take_prefix<uint64_t>(rest);
    slot.held = QueueMessage{queue, Bytes(rest.begin(), rest.end())};
  } else if (what == Report::ready) {
    const auto note = decode<ReadyNote>(rest);
    const std::string path =
        "/proc/" + std::to_string(slot.pid) + "/fd/" + std::to_string(note.diary);
    if (!slot.far) slot.diary = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
    slot.ready = true;
    restarts_.succeeded(slot.index);
  } else {
    end_first(slot, what, decode<EndNote>(rest));
  }
}

void ProcessSlots::end_first(Slot& slot, Report what, EndNote note) {
  if (slot.sent.empty() || slot.sent.front().order != note.order) {
    throw DataError("[pool] the end of a task that the worker does not have");
  }
  const Sent first = std::move(slot.sent.front());
  slot.sent.pop_front();
  const double seconds = std::chrono::duration<double>(Clock::now() - first.since).count();
  slot.mean_seconds += (seconds - slot.mean_seconds) / 8;
  slot.grace.reset();
  slot.limit.reset();
  first.task->diary = std::move(note.diary);
  if (what == Report::finished) {
    finish(first.task, std::move(note.result));
  } else {
    fail(first.task, std::move(note.error));
  }
  if (!slot.sent.empty()) begin_first(slot);
}

void ProcessSlots::bury(Slot& slot) {
  const uint64_t next = slot.head.next.load();
  const bool ending = stopping();
  for (; !slot.sent.empty(); slot.sent.pop_back()) {
    const Sent& sent = slot.sent.back();
    const TaskPtr task = sent.task;
    const bool first = &sent == &slot.sent.front(), begun = sent.order < next;
    if (first && begun) task->diary = slot.far ? slot.lost->printed : read_diary(slot.diary.get());
    const auto lost = [&](const char* when) {
      return TaskError{"WorkerLost",
                       fmt::format("[pool] worker {} (process {}) {} {} task {}", slot.index,
                                   slot.pid, slot.lost->how, when, task->number),
                       ""};
    };
    if (task->cancelling || ending) {
      end_as_cancelled(task);
    } else if (!begun) {
      if (task->state == TaskState::running) --task->attempts;
      if (first && slot.ready && ++task->lost_before >= kLostBefore) {
        fail(task, lost("before it could begin"));
      } else {
        put_back(task);
      }
    } else if (task->attempts <= task->options.retries) {
      put_back(task);
    } else {
      task->lost = *slot.lost;
      fail(task, lost("while it ran"));
    }
  }
  const auto present = by_index_.find(slot.index);
  if (present != by_index_.end() && present->second == &slot) by_index_.erase(present);
  by_offset_.erase(slot.range.offset);
  if (slot.worker != 0) by_worker_.erase(slot.worker);
  memory_.free(slot.range);
  if (slot.retiring || ending) return;
  if (slot.ready) {
    restarts_.plan(slot.index);
  } else {
    start_failed(slot.index, *slot.lost);
  }
}

double ProcessSlots::look_after(Slot& slot) {
  if (slot.sent.empty()) return 1;
  if (!slot.far) forget_diary(slot.diary.get());
  Task& task = *slot.sent.front().task;
  if (slot.limit && slot.limit->reached() && !task.cancelling) {
    task.cancelling = true;
    task.why = past_limit(task);
    stop_first(slot);
  }
  if (slot.grace && slot.grace->reached()) {
    end_process(slot, "did not stop on request");
    return 1;
  }
  double wait = 1;
  if (slot.grace) wait = std::min(wait, slot.grace->left());
  if (slot.limit && !task.cancelling) wait = std::min(wait, slot.limit->left());
  return wait + 1e-3;
}

void ProcessSlots::drain_messages(Slot& slot) {
  try {
    while (!slot.broken) {
      if (slot.held) deliver_held(slot);
      const auto message = slot.reports.next();
      if (!message) return;
      std::span<const std::byte> rest = *message;
      if (take_prefix<Report>(rest) == Report::message) take(slot, *message);
    }
  } catch (const std::exception&) {
    // The process was killed during a write, or wrote invalid data.
  }
}

void ProcessSlots::stop_slots() {
  for (const auto& slot : slots_) {
    for (const Sent& sent : slot->sent) end_as_cancelled(sent.task);
    slot->sent.clear();
  }
  bell_.ring();
  {
    const MutexUnlock unlocked(mutex);
    if (report_thread_.joinable()) report_thread_.join();
    supervisor_.stop();
    if (hosts_) hosts_->stop();
    memory_.on_free(nullptr);
  }
  for (const auto& slot : slots_) drain_messages(*slot);
  by_index_.clear();
  by_offset_.clear();
  by_worker_.clear();
  slots_.clear();
}

}  // namespace lockstep::detail
