#include "lockstep/train/workers/pool_workers.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/workers.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// Seconds for a cancelled task to end.
constexpr double kEndLimit = 5;

// Number of workers on this machine.
int workers_here(const std::shared_ptr<detail::PoolCore>& pool, const TrainingOptions& options) {
  if (pool && pool->hosts()) {
    int here = 0;
    for (int slot = 0; slot < pool->size(); ++slot) here += pool->hosts()->host_of(slot) == 0;
    return here;
  }
  if (options.workers.hosts.empty()) return static_cast<int>(options.workers.count);
  int here = 0;
  for (const TrainingHost& host : hosts_of(options)) {
    if (host.name.empty()) here = host.workers;
  }
  return here;
}

}  // namespace

std::shared_ptr<detail::PoolCore> open_training_pool(const TrainingOptions& options) {
  detail::ProcessPoolOptions own;
  own.workers = static_cast<int>(options.workers.count);
  own.threads = static_cast<int>(options.threads);
  for (const TrainingHost& host : hosts_of(options)) own.hosts.push_back({host.name, host.workers});
  own.launch = options.workers.host_launch;
  own.address = options.workers.host_address;
  own.same_processor = true;  // as the fingerprint of the numerics asks
  own.memory_bytes = static_cast<uint64_t>(options.workers.memory_mib) << 20;
  for (const std::string& entry : options.workers.environment) {
    own.environment.push_back(parse_variable(entry));
  }
  return detail::make_process_pool(own);
}

void PoolWorkers::Events::push(PoolWorkerEvent event) {
  const MutexLock lock(mutex);
  waiting.push_back(std::move(event));
  changed.notify_one();
}

// The messages are few, and workers must not wait for the client, so there is no limit.
class PoolWorkers::Reports final : public detail::Inbox {
 public:
  Reports(std::shared_ptr<Events> events, uint32_t worker)
      : events_(std::move(events)), worker_(worker) {}

  bool take(Bytes& message, bool) override {
    events_->push({.worker = worker_, .content = std::move(message)});
    return true;
  }

 private:
  const std::shared_ptr<Events> events_;
  const uint32_t worker_;
};

PoolWorkers::PoolWorkers(std::shared_ptr<detail::PoolCore> pool, const TrainingOptions& options)
    : own_(!pool),
      size_(workers_here(pool, options)),
      threads_(static_cast<int>(options.threads)),
      pool_(pool ? std::move(pool) : open_training_pool(options)) {}

PoolWorkers::~PoolWorkers() { end(); }

void PoolWorkers::end() {
  if (own_) {
    pool_->stop();
    return;
  }
  const auto each = [this](auto use) {
    for (auto& [number, w] : workers_) {
      try {
        use(w.task);
      } catch (const std::exception&) {
        // If the memory shared with its process is damaged, the pool ends the process.
      }
    }
  };
  each([this](const detail::TaskPtr& task) { pool_->cancel(task); });
  if (!ended(kEndLimit)) {
    each([this](const detail::TaskPtr& task) { pool_->kill(task, "did not end its training"); });
    ended(kEndLimit);
  }
  for (auto& [number, w] : workers_) pool_->remove_inbox(w.reports);
  workers_.clear();
}

bool PoolWorkers::ended(double seconds) {
  return pool_->wait(TimeLimit(seconds), [this] {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& entry) { return has_ended(entry.second.task->state); });
  });
}

void PoolWorkers::start_together(const std::function<void()>& starts) {
  const MutexLock one(pool_->blocks);
  starts();
}

std::optional<uint32_t> PoolWorkers::start(int slot, TrainingTask task, bool replaces) {
  const uint32_t number = next_++;
  Worker w{.task = nullptr,
           .slot = slot,
           .orders = pool_->next_number(),
           .inbox = std::make_shared<Reports>(events_, number)};
  w.reports = pool_->add_inbox(w.inbox);
  task.orders = w.orders;
  task.reports = w.reports;
  // Workers on another host use the cores that their processes have.
  if (host_of(slot) == 0) {
    const int own_slot = pool_->hosts() ? pool_->hosts()->local_rank_of(slot) : slot;
    task.cores = cores_of_worker(own_slot, size_, threads_);
    if (task.cores.empty()) task.cores = own_cores();
  }
  const Call<void> call = make_call<&train_as_worker>(task);
  try {
    const SubmitOptions options{.priority = replaces ? std::numeric_limits<int>::max() : 0};
    w.task =
        pool_->submit(call.function(), call.arguments(), options, slot, [events = events_, number] {
          events->push({.kind = PoolWorkerEvent::Kind::lost, .worker = number});
        });
  } catch (const InvalidArgument&) {
    pool_->remove_inbox(w.reports);
    return std::nullopt;
  }
  workers_.emplace(number, std::move(w));
  return number;
}

bool PoolWorkers::send(uint32_t worker, std::span<const std::byte> content) {
  const auto found = workers_.find(worker);
  return found != workers_.end() &&
         pool_->send_to(found->second.task, found->second.orders, content);
}

std::optional<PoolWorkerEvent> PoolWorkers::wait(const TimeLimit& limit) {
  PoolWorkerEvent event;
  {
    const MutexLock lock(events_->mutex);
    while (events_->waiting.empty()) {
      if (limit.reached()) return std::nullopt;
      events_->changed.wait_until(events_->mutex, limit);
    }
    event = std::move(events_->waiting.front());
    events_->waiting.pop_front();
  }
  const auto found = workers_.find(event.worker);
  if (found == workers_.end()) return event;
  {
    const MutexLock lock(pool_->mutex);
    const detail::Task& task = *found->second.task;
    event.pid = task.pid;
    if (event.kind == PoolWorkerEvent::Kind::message) return event;
    event.how = task.lost.how;
    event.own_fault = task.lost.own_fault;
    event.outside = task.lost.outside;
    event.printed = task.diary;
    event.error = task.error;
    event.cancelled = task.state == TaskState::cancelled;
    if (event.cancelled) {
      const std::string& reason = found->second.reason;
      event.how = reason.empty() ? "was cancelled" : reason + " and was cancelled";
    } else if (task.lost.how.empty()) {
      // A task that never began has not thrown.
      if (task.attempts > 0) event.kind = PoolWorkerEvent::Kind::failed;
      event.how = task.error.message;
    }
  }
  pool_->remove_inbox(found->second.reports);
  workers_.erase(found);
  return event;
}

void PoolWorkers::kill(uint32_t worker, const std::string& reason) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  found->second.reason = reason;
  pool_->kill(found->second.task, reason);
}

void PoolWorkers::cancel(uint32_t worker) {
  const auto found = workers_.find(worker);
  if (found != workers_.end()) pool_->cancel(found->second.task);
}

int64_t PoolWorkers::pid(uint32_t worker) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return 0;
  const MutexLock lock(pool_->mutex);
  return found->second.task->pid;
}

bool PoolWorkers::busy(uint32_t worker, const std::vector<WorkerStatus>& slots) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return false;
  const auto slot = static_cast<size_t>(found->second.slot);
  return slot < slots.size() && slots[slot].ready && slots[slot].task != 0 &&
         slots[slot].task != found->second.task->number;
}

}  // namespace lockstep
