// Requests to a process pool and the orders that it sends: see process_pool_core.h.
#include "lockstep/parallel/pool/processes/process_pool_core.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/resources.h"
#include "lockstep/parallel/process/worker_context.h"

namespace lockstep::detail {
namespace {

using Clock = TimeLimit::Clock;

// Workers with shorter tasks on average get up to kAhead tasks ahead of time.
constexpr double kShort = 1e-3;
constexpr size_t kAhead = 32;
// Bytes of messages that may wait at a worker for its tasks.
constexpr uint64_t kMostMessages = uint64_t{256} << 10;

}  // namespace

ProcessSlots::ProcessSlots(const ProcessPoolOptions& options)
    : options_(options),
      bell_memory_(memory_.map(bell_range_ = memory_.reserve(sizeof(Bell)))),
      bell_(*std::launder(reinterpret_cast<Bell*>(bell_memory_.get()))) {
  try {
    resize(options.workers);
    if (hosts_) memory_.on_free([this](const SharedRange& range) { hosts_->forget(range); });
    supervisor_.begin();
    if (hosts_) hosts_->begin();
    report_thread_ = quiet_thread([this] { take_reports(); });
  } catch (...) {
    stop();
    throw;
  }
}

int ProcessSlots::size() {
  const MutexLock lock(mutex);
  return wanted_;
}

void ProcessSlots::resize(int workers) {
  const MutexLock lock(mutex);
  wanted_ = workers;
  for (int i = 0; i < workers; ++i) {
    if (!slot_of(i)) open_slot(i);
  }
  for (const auto& slot : slots_) {
    if (slot->index < workers) continue;
    slot->retiring = true;  // it ends when it has no tasks left
    by_index_.erase(slot->index);
    take_back(*slot);
  }
  work_came();
}

bool ProcessSlots::send_to(int index, uint64_t queue, std::span<const std::byte> message,
                           const TimeLimit& limit) {
  const Bytes content = with_prefix(queue, message);
  for (;;) {
    {
      const MutexLock lock(mutex);
      Slot* const slot = slot_of(index);
      if (slot == nullptr) return false;
      const uint64_t waiting = slot->messages_sent - slot->head.messages_taken.load();
      if (slot->lost || slot->ending || waiting < kMostMessages) return post(*slot, content);
    }
    if (limit.reached()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool ProcessSlots::send_to(const TaskPtr& task, uint64_t queue,
                           std::span<const std::byte> message) {
  const MutexLock lock(mutex);
  Slot* const slot = slot_that_runs(task);
  return slot != nullptr && post(*slot, with_prefix(queue, message));
}

std::vector<WorkerStatus> ProcessSlots::slots() {
  const MutexLock lock(mutex);
  std::vector<WorkerStatus> all;
  for (int i = 0; i < wanted_; ++i) {
    WorkerStatus& status = all.emplace_back();
    const Slot* const slot = slot_of(i);
    if (slot == nullptr) continue;
    status = {slot->pid, slot->ready, slot->sent.empty() ? 0 : slot->sent[0].task->number};
  }
  return all;
}

WorkerSlot* ProcessSlots::slot_of(int index) const {
  const auto found = by_index_.find(index);
  return found == by_index_.end() ? nullptr : found->second;
}

WorkerSlot* ProcessSlots::slot_that_runs(const TaskPtr& task) const {
  if (task->state != TaskState::running) return nullptr;
  Slot* const present = slot_of(task->worker);
  if (present != nullptr && !present->sent.empty() && present->sent.front().task == task) {
    return present;
  }
  for (const auto& slot : slots_) {
    if (!slot->sent.empty() && slot->sent.front().task == task) return slot.get();
  }
  return nullptr;
}

bool ProcessSlots::post(Slot& slot, const Bytes& message) {
  if (slot.lost || slot.ending) return false;
  slot.messages_sent += message.size();
  slot.send(Order::message, message);
  return true;
}

void ProcessSlots::open_slot(int index) {
  auto slot = std::make_unique<Slot>(memory_, index);
  if (far(index)) {
    slot->far = [this, range = slot->range] { hosts_->ring(range); };
    hosts_->belongs_to(hosts_->host_of(index), slot->range);
  }
  for (const auto& [name, path] : files()) send_file(*slot, name);
  const bool spin = wanted_ * options_.threads < available_cores();
  const int rank = hosts_ ? hosts_->local_rank_of(index) : index;
  const SlotTicket ticket{slot->range, bell_range_, index, rank, spin};
  supervisor_of(index).start(ticket);
  by_index_[index] = slot.get();
  by_offset_[slot->range.offset] = slot.get();
  slots_.push_back(std::move(slot));
}

void ProcessSlots::end_process(Slot& slot, const std::string& reason) {
  if (slot.worker == 0 || slot.ending) return;
  slot.ending = true;
  supervisor_of(slot.index).kill(slot.worker, reason);
}

Supervisor& ProcessSlots::supervisor_of(int index) {
  if (far(index)) return *hosts_;
  return supervisor_;
}

void ProcessSlots::file_came(const std::string& name) {
  for (const auto& slot : slots_) send_file(*slot, name);
}

void ProcessSlots::share_file(const std::string& name, const std::string& path) {
  if (!hosts_) return;
  {
    const MutexLock lock(mutex);
    if (shared_files_.count(name) > 0) return;
  }
  std::optional<std::string> copy = hosts_->share(path);
  if (!copy) return;
  const MutexLock lock(mutex);
  shared_files_.emplace(name, *std::move(copy));
}

void ProcessSlots::send_file(Slot& slot, const std::string& name) {
  const auto shared = shared_files_.find(name);
  const bool copied = slot.far && shared != shared_files_.end();
  slot.send(Order::file, encode(std::pair(name, copied ? shared->second : files().at(name))));
}

void ProcessSlots::work_came() {
  if (stopping()) return;
  hand_out();
  rebalance();
  for (const auto& slot : slots_) {
    if (!slot->retiring || !slot->sent.empty()) continue;
    if (!any_queued(slot->index, true)) end_process(*slot, "");
  }
}

void ProcessSlots::hand_out() {
  if (queued() == 0) return;
  while (Slot* const slot = slot_for_more()) give(*slot, take_next(slot->index, slot->retiring));
}

WorkerSlot* ProcessSlots::slot_for_more() const {
  Slot* best = nullptr;
  for (const auto& slot : slots_) {
    if (!slot->ready || slot->lost || slot->ending) continue;
    // A task that was sent to another host cannot be taken back.
    const bool may_wait = slot->mean_seconds < kShort && !slot->far;
    const size_t ahead = may_wait ? std::min(kAhead, queued() / slots_.size()) : 0;
    if (slot->sent.size() > ahead || !any_queued(slot->index, slot->retiring)) continue;
    if (best == nullptr || slot->sent.size() < best->sent.size()) best = slot.get();
  }
  return best;
}

void ProcessSlots::give(Slot& slot, TaskPtr task) {
  TaskOrder order{.order = slot.next_order++,
                  .task = task->number,
                  .seed = task->options.seed,
                  .workers = wanted_,
                  .function = task->function,
                  .arguments = task->arguments};
  slot.send(Order::task, encode(order));
  slot.sent.push_back({std::move(task), order.order, Clock::now()});
  if (slot.sent.size() == 1) begin_first(slot);
}

void ProcessSlots::begin_first(Slot& slot) {
  Sent& first = slot.sent.front();
  first.since = Clock::now();
  first.task->state = TaskState::running;
  first.task->worker = slot.index;
  first.task->pid = slot.pid;
  ++first.task->attempts;
  slot.grace.reset();
  slot.limit.reset();
  if (first.task->options.limit > 0) {
    slot.limit.emplace(first.task->options.limit);
    bell_.ring();  // report_thread_ has a new deadline
  }
  // It was cancelled before it began.
  if (first.task->cancelling) stop_first(slot);
}

void ProcessSlots::take_back(Slot& slot) {
  uint64_t next = slot.head.next.load();
  while (!slot.head.next.compare_exchange_weak(next, slot.next_order)) {
  }
  while (!slot.sent.empty() && slot.sent.back().order >= next) {
    const TaskPtr task = std::move(slot.sent.back().task);
    slot.sent.pop_back();
    if (task->state == TaskState::running) --task->attempts;
    task->cancelling ? end_as_cancelled(task) : put_back(task);
  }
  if (!slot.sent.empty()) return;
  slot.grace.reset();
  slot.limit.reset();
}

void ProcessSlots::rebalance() {
  const auto free = [&](const auto& slot) LOCKSTEP_REQUIRES(mutex) {
    return slot->ready && !slot->retiring && !slot->lost && !slot->ending && slot->sent.empty() &&
           !any_queued(slot->index);
  };
  if (std::none_of(slots_.begin(), slots_.end(), free)) return;
  bool some = false;
  for (const auto& slot : slots_) {
    // A task after a single short one begins sooner here than on another worker.
    const bool busy = slot->sent.size() > 2 ||
                      (slot->sent.size() == 2 &&
                       Clock::now() - slot->sent[0].since > std::chrono::duration<double>(kShort));
    if (!busy) continue;
    take_back(*slot);
    some = true;
  }
  if (some) hand_out();
}

void ProcessSlots::stop_running(const TaskPtr& task) {
  for (const auto& slot : slots_) {
    for (const Sent& sent : slot->sent) {
      if (sent.task != task) continue;
      if (&sent == &slot->sent.front() && slot->begun(sent)) {
        stop_first(*slot);
      } else {
        take_back(*slot);  // no effect if it has begun meanwhile
        if (!slot->sent.empty() && slot->sent.front().task == task) stop_first(*slot);
        work_came();
      }
      return;
    }
  }
}

void ProcessSlots::stop_first(Slot& slot) {
  slot.head.cancelled = slot.sent.front().order + 1;
  slot.ring();
  slot.grace.emplace(options_.grace);
  bell_.ring();  // report_thread_ has a new deadline
}

bool ProcessSlots::end_process_of(const TaskPtr& task, const std::string& reason) {
  Slot* const slot = slot_that_runs(task);
  if (slot == nullptr || !slot->begun(slot->sent.front())) return false;
  end_process(*slot, reason);
  return true;
}

std::string ProcessSlots::running_diary(const TaskPtr& task) {
  const Slot* const slot = slot_that_runs(task);
  return slot == nullptr ? "" : read_diary(slot->diary.get());
}

SupervisorEvents ProcessSlots::reports() {
  return {
      .started =
          [this](const SlotTicket& ticket, uint32_t worker, pid_t pid, const WorkerEnd& why) {
            const MutexLock lock(mutex);
            const auto found = by_offset_.find(ticket.slot.offset);
            if (found != by_offset_.end()) {
              Slot* const slot = found->second;
              slot->worker = worker;
              slot->pid = pid;
              if (worker != 0) by_worker_[worker] = slot;
              if (worker == 0) {
                slot->lost = why;
                slot->lost->how = "could not be started (" + why.how + ")";
              }
            }
            work_came();
            bell_.ring();
          },
      .ended =
          [this](uint32_t worker, const WorkerEnd& end) {
            const MutexLock lock(mutex);
            const auto found = by_worker_.find(worker);
            if (found != by_worker_.end()) found->second->lost = end;
            bell_.ring();
          },
      .failed =
          [this](const std::string& why) {
            const MutexLock lock(mutex);
            broken_ = "its workers cannot be reached: " + why;
            for (const auto& slot : slots_) slot->lost = WorkerEnd{.how = broken_};
            wanted_ = 0;
            bell_.ring();
          },
      .refused = [this](int64_t strangers) { strangers_ += strangers; },
      .rung =
          [this](size_t slot) {
            {
              const MutexLock lock(rung_mutex_);
              rung_.push_back(slot);
            }
            bell_.ring();
          },
  };
}

std::unique_ptr<RemoteSupervisor> ProcessSlots::make_hosts() {
  if (options_.hosts.empty() && options_.launch.empty()) return nullptr;
  return host_support().make_supervisor(memory_, bell_range_, options_, reports());
}

ProcessPoolOptions ProcessSlots::own_options() const {
  ProcessPoolOptions own = options_;
  if (!options_.hosts.empty()) own.workers = 0;
  for (const PoolHost& host : options_.hosts) {
    if (host.name.empty()) own.workers = host.workers;
  }
  return own;
}

std::shared_ptr<PoolCore> make_process_pool(const ProcessPoolOptions& options) {
  if (!has_runtime()) {
    throw InvalidArgument("[pool] this program cannot start worker processes",
                          "begin main() with: lockstep::Runtime runtime(argc, argv);");
  }
  int here = options.hosts.empty() ? options.workers : 0, elsewhere = 0;
  for (const PoolHost& host : options.hosts) {
    host.name.empty() ? here = host.workers : ++elsewhere;
  }
  const bool join = options.launch.starts_with("join ") || options.launch.starts_with("cluster ");
  check_resources({.workers = here,
                   .threads = options.threads,
                   .hosts = join ? 0 : elsewhere,
                   .joining = join ? elsewhere : 0});
  return std::make_shared<ProcessSlots>(options);
}

}  // namespace lockstep::detail
