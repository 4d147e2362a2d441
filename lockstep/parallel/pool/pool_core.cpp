#include "lockstep/parallel/pool/pool_core.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "lockstep/base/error.h"

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

bool over(TaskState state) { return state != TaskState::queued && state != TaskState::running; }

}  // namespace

PoolCore::PoolCore() : callbacks_thread_([this] { run_callbacks(); }) {}

PoolCore::~PoolCore() = default;

TaskPtr PoolCore::submit(const FunctionId& function, Bytes arguments, const SubmitOptions& options,
                         int seat, std::function<void()> on_failure) {
  auto task = std::make_shared<Task>();
  task->function = function;
  task->arguments = std::move(arguments);
  task->options = options;
  task->seat = seat;
  task->on_failure = std::move(on_failure);
  const std::lock_guard lock(mutex);
  if (stopping_) throw InvalidArgument("[pool] it is closed");
  if (task->options.seed == 0) task->options.seed = seed;
  task->number = next_++;
  (seat < 0 ? any_ : pinned_[seat])[options.priority].push_back(task);
  ++queued_;
  work_came();
  return task;
}

bool PoolCore::any_queued(int seat, bool only_own) const {
  const auto has = [](const Queue& queue) {
    return std::any_of(queue.begin(), queue.end(),
                       [](const auto& entry) { return !entry.second.empty(); });
  };
  const auto own = pinned_.find(seat);
  return (!only_own && has(any_)) || (own != pinned_.end() && has(own->second));
}

TaskPtr PoolCore::take_next(int seat, bool only_own) {
  const auto own = pinned_.find(seat);
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
  (task->seat < 0 ? any_ : pinned_[task->seat])[task->options.priority].push_front(task);
  ++queued_;
}

void PoolCore::remove_queued(const TaskPtr& task) {
  auto& queue = (task->seat < 0 ? any_ : pinned_[task->seat])[task->options.priority];
  const auto found = std::find(queue.begin(), queue.end(), task);
  if (found == queue.end()) return;
  queue.erase(found);
  --queued_;
  end_as_cancelled(task);
}

void PoolCore::cancel(const TaskPtr& task) {
  const std::lock_guard lock(mutex);
  if (over(task->state) || task->cancelling) return;
  task->cancelling = true;
  remove_queued(task);
  if (!over(task->state)) stop_running(task);
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

void PoolCore::end_as_cancelled(const TaskPtr& task) {
  task->error = {task->why.empty() ? "Cancelled" : "Timeout",
                 "[pool] task " + std::to_string(task->number) +
                     (task->why.empty() ? " was cancelled" : task->why),
                 ""};
  end(task, TaskState::cancelled);
}

bool PoolCore::wait(const TimeLimit& limit, const std::function<bool()>& holds) {
  std::unique_lock lock(mutex);
  while (!holds()) {
    if (limit.reached()) return false;
    // In slices: a wait of a century is more than the system's clock can count.
    changed_.wait_for(lock, std::chrono::duration<double>(std::min(limit.left(), 3600.0)));
  }
  return true;
}

void PoolCore::then(const TaskPtr& task, std::function<void()> after) {
  {
    const std::lock_guard lock(mutex);
    if (!over(task->state)) {
      task->after.push_back(std::move(after));
      return;
    }
  }
  post(std::move(after));
}

std::string PoolCore::diary(const TaskPtr& task) {
  const std::lock_guard lock(mutex);
  return task->state == TaskState::running ? running_diary(task) : task->diary;
}

void PoolCore::post(std::function<void()> callback) {
  {
    const std::lock_guard lock(callbacks_mutex_);
    if (!callbacks_end_) {
      callbacks_.push_back(std::move(callback));
      callbacks_came_.notify_one();
      return;
    }
  }
  callback();  // the pool is closed: nobody else does
}

void PoolCore::run_callbacks() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are for the program's own threads
  std::unique_lock lock(callbacks_mutex_);
  for (;;) {
    callbacks_came_.wait(lock, [&] { return callbacks_end_ || !callbacks_.empty(); });
    if (callbacks_.empty()) return;
    {
      const std::function<void()> callback = std::move(callbacks_.front());
      callbacks_.pop_front();
      lock.unlock();
      callback();
    }
    lock.lock();
  }
}

uint64_t PoolCore::add_inbox(std::weak_ptr<Inbox> inbox) {
  const std::lock_guard lock(inboxes_mutex_);
  inboxes_.emplace(next_inbox_, std::move(inbox));
  return next_inbox_++;
}

bool PoolCore::deliver(uint64_t number, Bytes& message) {
  std::shared_ptr<Inbox> inbox;
  {
    const std::lock_guard lock(inboxes_mutex_);
    const auto found = inboxes_.find(number);
    if (found != inboxes_.end()) inbox = found->second.lock();
    if (found != inboxes_.end() && !inbox) inboxes_.erase(found);
  }
  return !inbox || inbox->take(message);
}

void PoolCore::stop() {
  std::unique_lock lock(mutex);
  if (stopping_) {
    changed_.wait(lock, [&] { return stopped_; });
    return;
  }
  stopping_ = true;
  for (auto& [priority, tasks] : any_) {
    for (const TaskPtr& task : tasks) end_as_cancelled(task);
  }
  any_.clear();
  for (auto& [seat, queue] : pinned_) {
    for (auto& [priority, tasks] : queue) {
      for (const TaskPtr& task : tasks) end_as_cancelled(task);
    }
  }
  pinned_.clear();
  queued_ = 0;
  stop_seats(lock);
  lock.unlock();
  {
    const std::lock_guard callbacks(callbacks_mutex_);
    callbacks_end_ = true;
    callbacks_came_.notify_all();
  }
  callbacks_thread_.join();  // when it has called all
  lock.lock();
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace detail
}  // namespace lockstep
