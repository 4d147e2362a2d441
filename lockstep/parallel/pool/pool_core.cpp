#include "lockstep/parallel/pool/pool_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/quiet_thread.h"

namespace lockstep {

const char* to_string(TaskState state) {
  switch (state) {
    case TaskState::queued:
      return "queued";
    case TaskState::running:
      return "running";
    case TaskState::finished:
      return "finished";
    case TaskState::failed:
      return "failed";
    case TaskState::cancelled:
      return "cancelled";
  }
  return "";
}

namespace detail {
namespace {

// Must fit into one message with the rest of an order.
constexpr size_t kMostArguments = (size_t{1} << 32) - 4096;

void check(const SubmitOptions& options) {
  if (options.retries < 0) {
    throw InvalidArgument(fmt::format("[pool] retries must be >= 0, received {}", options.retries));
  }
  if (!(options.limit >= 0)) {
    throw InvalidArgument(fmt::format("[pool] limit must be >= 0, received {:g}", options.limit));
  }
}

}  // namespace

std::string past_limit(const Task& task) {
  return fmt::format(" exceeded its limit of {:g} s", task.options.limit);
}

PoolCore::PoolCore() : callbacks_thread_(quiet_thread([this] { run_callbacks(); })) {}

// No effect after stop(). Without stop() (a constructor has thrown) it ends the callback thread.
PoolCore::~PoolCore() { end_callbacks(); }

void PoolCore::end_callbacks() {
  {
    const MutexLock lock(callbacks_mutex_);
    callbacks_end_ = true;
    callbacks_came_.notify_all();
  }
  if (callbacks_thread_.joinable()) callbacks_thread_.join();  // after all callbacks have run
}

TaskPtr PoolCore::submit(const FunctionId& function, Bytes arguments, const SubmitOptions& options,
                         int slot, std::function<void()> on_failure) {
  check(options);
  auto task = std::make_shared<Task>();
  task->function = function;
  task->arguments = std::move(arguments);
  task->options = options;
  task->slot = slot;
  task->on_failure = std::move(on_failure);
  if (task->arguments.size() > kMostArguments) {
    throw InvalidArgument(
        "[pool] a task's arguments of " + std::to_string(task->arguments.size()) + " bytes",
        "give it the name of a file that holds them");
  }
  const MutexLock lock(mutex);
  if (stopping_) throw InvalidArgument("[pool] the pool is closed");
  if (slot >= wanted()) {
    if (const std::string why = broken(); !why.empty()) throw WorkerLost("[pool] " + why);
    throw InvalidArgument("[pool] there is no worker " + std::to_string(slot) + " among " +
                          std::to_string(wanted()));
  }
  if (task->options.seed == 0) task->options.seed = seed;
  task->number = next_++;
  queue_of(*task).push_back(task);
  ++queued_;
  work_came();
  return task;
}

void PoolCore::attach(const std::string& name, const std::string& path) {
  share_file(name, path);
  const MutexLock lock(mutex);
  const auto [known, is_new] = files_.emplace(name, path);
  if (known->second != path) {
    throw InvalidArgument("[pool] " + path + " cannot be attached: " + known->second +
                          " has the same name");
  }
  if (is_new) file_came(name);
}

std::deque<TaskPtr>& PoolCore::queue_of(const Task& task) {
  return (task.slot < 0 ? any_ : pinned_[task.slot])[task.options.priority];
}

bool PoolCore::any_queued(int slot, bool only_own) const {
  const auto has = [](const Queue& queue) {
    return std::any_of(queue.begin(), queue.end(),
                       [](const auto& entry) { return !entry.second.empty(); });
  };
  const auto own = pinned_.find(slot);
  return (!only_own && has(any_)) || (own != pinned_.end() && has(own->second));
}

TaskPtr PoolCore::take_next(int slot, bool only_own) {
  const auto own = pinned_.find(slot);
  for (Queue* const queue :
       {own == pinned_.end() ? nullptr : &own->second, only_own ? nullptr : &any_}) {
    if (queue == nullptr) continue;
    for (auto entry = queue->begin(); entry != queue->end();) {
      if (entry->second.empty()) {
        entry = queue->erase(entry);
        continue;
      }
      TaskPtr task = std::move(entry->second.front());
      entry->second.pop_front();
      --queued_;
      return task;
    }
  }
  return nullptr;
}

void PoolCore::put_back(const TaskPtr& task) {
  task->state = TaskState::queued;
  task->pid = 0;
  queue_of(*task).push_front(task);
  ++queued_;
}

void PoolCore::remove_queued(const TaskPtr& task) {
  auto& queue = queue_of(*task);
  const auto found = std::find(queue.begin(), queue.end(), task);
  if (found == queue.end()) return;
  queue.erase(found);
  --queued_;
  end_as_cancelled(task);
}

void PoolCore::cancel(const TaskPtr& task) {
  const MutexLock lock(mutex);
  if (has_ended(task->state) || task->cancelling) return;
  task->cancelling = true;
  remove_queued(task);
  if (!has_ended(task->state)) stop_running(task);
}

void PoolCore::end(const TaskPtr& task, TaskState state) {
  task->state = state;
  task->arguments = {};
  if (state != TaskState::finished && task->on_failure) task->on_failure();
  std::vector<std::function<void()>> after = std::exchange(task->after, {});
  for (auto& callback : after) post(std::move(callback));
  changed_.notify_all();
}

void PoolCore::finish(const TaskPtr& task, Bytes result) {
  if (task->cancelling) return end_as_cancelled(task);
  task->result = std::move(result);
  end(task, TaskState::finished);
}

void PoolCore::fail(const TaskPtr& task, TaskError error) {
  if (task->cancelling) return end_as_cancelled(task);
  task->error = std::move(error);
  end(task, TaskState::failed);
}

void PoolCore::fail_queued(int slot, const TaskError& error) {
  while (const TaskPtr task = take_next(slot, true)) fail(task, error);
}

void PoolCore::fail_all_queued(const TaskError& error) {
  for (const int slot : pinned_slots()) fail_queued(slot, error);
  while (const TaskPtr task = take_next(-1)) fail(task, error);
}

std::vector<int> PoolCore::pinned_slots() const {
  std::vector<int> slots;
  for (const auto& [slot, queue] : pinned_) {
    if (any_queued(slot, true)) slots.push_back(slot);
  }
  return slots;
}

void PoolCore::kill(const TaskPtr& task, const std::string& reason) {
  {
    const MutexLock lock(mutex);
    if (has_ended(task->state) || end_process_of(task, reason)) return;
  }
  cancel(task);
}

void PoolCore::end_as_cancelled(const TaskPtr& task) {
  task->error = {task->why.empty() ? "Cancelled" : "Timeout",
                 "[pool] task " + std::to_string(task->number) +
                     (task->why.empty() ? " was cancelled" : task->why),
                 ""};
  end(task, TaskState::cancelled);
}

bool PoolCore::wait(const TimeLimit& limit, const std::function<bool()>& holds) {
  const MutexLock lock(mutex);
  while (!holds()) {
    if (limit.reached()) return false;
    changed_.wait_until(mutex, limit);
  }
  return true;
}

void PoolCore::then(const TaskPtr& task, std::function<void()> after) {
  {
    const MutexLock lock(mutex);
    if (!has_ended(task->state)) {
      task->after.push_back(std::move(after));
      return;
    }
  }
  post(std::move(after));
}

std::string PoolCore::diary(const TaskPtr& task) {
  const MutexLock lock(mutex);
  return task->state == TaskState::running ? running_diary(task) : task->diary;
}

void PoolCore::post(std::function<void()> callback) {
  {
    const MutexLock lock(callbacks_mutex_);
    if (!callbacks_ended_) {
      callbacks_.push_back(std::move(callback));
      callbacks_came_.notify_one();
      return;
    }
  }
  callback();  // the callback thread of a closed pool no longer runs
}

void PoolCore::run_callbacks() {
  const MutexLock lock(callbacks_mutex_);
  for (;;) {
    // No limit: an idle thread, which end_callbacks() wakes.
    while (!callbacks_end_ && callbacks_.empty()) callbacks_came_.wait(callbacks_mutex_);
    if (callbacks_.empty()) {
      callbacks_ended_ = true;
      return;
    }
    std::function<void()> callback = std::move(callbacks_.front());
    callbacks_.pop_front();
    const MutexUnlock unlocked(callbacks_mutex_);
    callback();
    callback = nullptr;  // what it holds is destroyed without the mutex
  }
}

uint64_t PoolCore::add_inbox(std::weak_ptr<Inbox> inbox) {
  const MutexLock lock(inboxes_mutex_);
  inboxes_.emplace(next_inbox_, std::move(inbox));
  return next_inbox_++;
}

void PoolCore::remove_inbox(uint64_t number) {
  const MutexLock lock(inboxes_mutex_);
  inboxes_.erase(number);
}

uint64_t PoolCore::next_number() {
  const MutexLock lock(inboxes_mutex_);
  return next_inbox_++;
}

bool PoolCore::deliver(uint64_t number, Bytes& message, bool last) {
  std::shared_ptr<Inbox> inbox;
  {
    const MutexLock lock(inboxes_mutex_);
    const auto found = inboxes_.find(number);
    if (found != inboxes_.end()) inbox = found->second.lock();
  }
  return !inbox || inbox->take(message, last);
}

void PoolCore::stop() {
  const MutexLock lock(mutex);
  if (stopping_) {
    // No limit: another thread joins the pool's threads, which must not run afterwards.
    while (!stopped_) changed_.wait(mutex);
    return;
  }
  stopping_ = true;
  for (auto& [priority, tasks] : any_) {
    for (const TaskPtr& task : tasks) end_as_cancelled(task);
  }
  any_.clear();
  for (auto& [slot, queue] : pinned_) {
    for (auto& [priority, tasks] : queue) {
      for (const TaskPtr& task : tasks) end_as_cancelled(task);
    }
  }
  pinned_.clear();
  queued_ = 0;
  stop_slots();
  {
    const MutexUnlock unlocked(mutex);
    end_callbacks();
  }
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace detail
}  // namespace lockstep
