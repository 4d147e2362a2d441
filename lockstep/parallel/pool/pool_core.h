// The common base of all kinds of pools: tasks and their states, the task queue, callbacks, and
// message queues.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/pool/task.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/host_memory.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/parallel/process/worker_end.h"

namespace lockstep {

namespace detail {

// One task, guarded by its pool's mutex once it is submitted. A task does not know its pool: the
// functions that use tasks are annotated, not its members.
struct Task {
  uint64_t number = 0;  // in the order of submission, from 1
  FunctionId function;
  Bytes arguments;
  SubmitOptions options;
  int slot = -1;  // index of the worker that must run it; -1: any
  // Called as soon as it has failed or was cancelled, with the mutex held.
  std::function<void()> on_failure = {};

  TaskState state = TaskState::queued;
  int worker = -1;      // index of the worker that runs or ran it
  int64_t pid = 0;      // of the worker's process
  int attempts = 0;     // number of starts
  int lost_before = 0;  // workers that ended before they could start it
  bool cancelling = false;
  std::string why;  // reason of the cancellation, if not cancel()
  WorkerEnd lost;   // how its worker ended, if that ended the task
  Bytes result;
  TaskError error;
  std::string diary;
  std::vector<std::function<void()>> after;  // called when the task has ended
};

using TaskPtr = std::shared_ptr<Task>;

// The reason of a cancellation: " ran for longer than its limit of 0.5 s".
std::string past_limit(const Task& task);

// Messages from tasks for one queue of the client.
class Inbox {
 public:
  virtual ~Inbox() = default;
  // Takes a message. False if there is no room now; the caller must then deliver it again. With
  // `last` no second delivery is possible, so the message is taken anyway.
  virtual bool take(Bytes& message, bool last) = 0;
};

class PoolCore {
 public:
  PoolCore();
  virtual ~PoolCore();

  // The public functions are thread-safe. submit() throws InvalidArgument for options out of range,
  // for a worker that does not exist, and for a closed pool.
  TaskPtr submit(const FunctionId& function, Bytes arguments, const SubmitOptions& options,
                 int slot = -1, std::function<void()> on_failure = {}) LOCKSTEP_EXCLUDES(mutex);
  void cancel(const TaskPtr& task) LOCKSTEP_EXCLUDES(mutex);
  // Ends the process that runs the task at once, for the given reason. A task that has not begun,
  // or that runs in a thread, is cancelled.
  void kill(const TaskPtr& task, const std::string& reason) LOCKSTEP_EXCLUDES(mutex);
  // Waits until the condition holds, which is tested under the mutex; false at the limit.
  bool wait(const TimeLimit& limit, const std::function<bool()>& holds) LOCKSTEP_EXCLUDES(mutex);
  // Calls `after` in the callback thread once the task has ended.
  void then(const TaskPtr& task, std::function<void()> after) LOCKSTEP_EXCLUDES(mutex);
  std::string diary(const TaskPtr& task) LOCKSTEP_EXCLUDES(mutex);
  // Runs it in the callback thread; in the calling thread once the pool is closed.
  void post(std::function<void()> callback) LOCKSTEP_EXCLUDES(callbacks_mutex_);
  uint64_t add_inbox(std::weak_ptr<Inbox> inbox) LOCKSTEP_EXCLUDES(inboxes_mutex_);
  void remove_inbox(uint64_t number) LOCKSTEP_EXCLUDES(inboxes_mutex_);
  // A number that no inbox has.
  uint64_t next_number() LOCKSTEP_EXCLUDES(inboxes_mutex_);
  // Sends a message to the tasks of one worker. Waits while the worker takes none. False at the
  // limit, and if the worker is lost or does not exist.
  virtual bool send_to(int slot, uint64_t queue, std::span<const std::byte> message,
                       const TimeLimit& limit) = 0;
  // The same for the worker that runs `task`, even if it is about to leave the pool. The number of
  // waiting messages is not bounded, so it does not wait. Process pools only: other pools return
  // false.
  virtual bool send_to(const TaskPtr&, uint64_t, std::span<const std::byte>) { return false; }
  // See Pool::attach_file().
  void attach(const std::string& name, const std::string& path) LOCKSTEP_EXCLUDES(mutex);
  virtual int size() = 0;
  virtual void resize(int workers) = 0;
  // The arena that the client shares with the pool's workers.
  virtual SharedMemory& memory() = 0;
  // Ends the pool: cancels all tasks that have not ended, and runs the callbacks. No thread of the
  // pool runs afterwards. Must not be called from callbacks. Every pool calls it before its
  // destruction.
  void stop() LOCKSTEP_EXCLUDES(mutex);
  virtual std::vector<WorkerStatus> slots() = 0;
  // The memory of the pool's workers on other hosts; null if there are no other hosts.
  virtual HostMemory* hosts() { return nullptr; }
  // Number of strangers' attempts to connect to the workers' control channel so far.
  virtual int64_t strangers() const { return 0; }
  // Messages were taken, so an inbox or a worker may have room again.
  virtual void room() = 0;

  Mutex mutex;
  Mutex blocks;       // ensures that tasks of two blocks reach all workers in the same order
  uint64_t seed = 0;  // set before the first submit()

 protected:
  // Number of workers.
  virtual int wanted() const LOCKSTEP_REQUIRES(mutex) = 0;
  // Why the pool cannot run any task; empty if it can.
  virtual std::string broken() const LOCKSTEP_REQUIRES(mutex) { return {}; }
  // Called before a file is attached, without the mutex, for work that takes long. Throws
  // FileError.
  virtual void share_file(const std::string&, const std::string&) LOCKSTEP_EXCLUDES(mutex) {}
  // A file was attached.
  virtual void file_came(const std::string& name) LOCKSTEP_REQUIRES(mutex) = 0;
  // Hand out waiting tasks.
  virtual void work_came() LOCKSTEP_REQUIRES(mutex) = 0;
  // Stop the task, see Task::cancelling.
  virtual void stop_running(const TaskPtr& task) LOCKSTEP_REQUIRES(mutex) = 0;
  virtual std::string running_diary(const TaskPtr& task) LOCKSTEP_REQUIRES(mutex) = 0;
  // False if the task does not run in its own process.
  virtual bool end_process_of(const TaskPtr&, const std::string&) LOCKSTEP_REQUIRES(mutex) {
    return false;
  }
  // Ends all workers. Releases the mutex meanwhile.
  virtual void stop_slots() LOCKSTEP_REQUIRES(mutex) = 0;
  // The next task for a slot, from the shared and the slot's own queue or (only_own) from its own
  // alone. Null if there is none.
  TaskPtr take_next(int slot, bool only_own = false) LOCKSTEP_REQUIRES(mutex);
  bool any_queued(int slot, bool only_own = false) const LOCKSTEP_REQUIRES(mutex);
  size_t queued() const LOCKSTEP_REQUIRES(mutex) { return queued_; }
  // Puts the task back to the front of the queue.
  void put_back(const TaskPtr& task) LOCKSTEP_REQUIRES(mutex);
  void finish(const TaskPtr& task, Bytes result) LOCKSTEP_REQUIRES(mutex);
  void fail(const TaskPtr& task, TaskError error) LOCKSTEP_REQUIRES(mutex);
  void end_as_cancelled(const TaskPtr& task) LOCKSTEP_REQUIRES(mutex);
  bool stopping() const LOCKSTEP_REQUIRES(mutex) { return stopping_; }
  // Fails the queued tasks of one slot, or all.
  void fail_queued(int slot, const TaskError& error) LOCKSTEP_REQUIRES(mutex);
  void fail_all_queued(const TaskError& error) LOCKSTEP_REQUIRES(mutex);
  // Path by name.
  const std::map<std::string, std::string>& files() const LOCKSTEP_REQUIRES(mutex) {
    return files_;
  }
  // Slots with queued tasks of their own.
  std::vector<int> pinned_slots() const LOCKSTEP_REQUIRES(mutex);
  // Gives a message to its inbox. True if it was taken, or if the inbox no longer exists.
  bool deliver(uint64_t inbox, Bytes& message, bool last = false) LOCKSTEP_EXCLUDES(inboxes_mutex_);

 private:
  void end(const TaskPtr& task, TaskState state) LOCKSTEP_REQUIRES(mutex);
  void run_callbacks() LOCKSTEP_EXCLUDES(callbacks_mutex_);
  void end_callbacks() LOCKSTEP_EXCLUDES(callbacks_mutex_);
  void remove_queued(const TaskPtr& task) LOCKSTEP_REQUIRES(mutex);

  using Queue = std::map<int, std::deque<TaskPtr>, std::greater<>>;  // by priority
  std::deque<TaskPtr>& queue_of(const Task& task) LOCKSTEP_REQUIRES(mutex);
  ConditionVariable changed_;
  Queue any_ LOCKSTEP_GUARDED_BY(mutex);                    // for any free worker
  std::map<int, Queue> pinned_ LOCKSTEP_GUARDED_BY(mutex);  // by slot
  std::map<std::string, std::string> files_ LOCKSTEP_GUARDED_BY(mutex);
  size_t queued_ LOCKSTEP_GUARDED_BY(mutex) = 0;
  uint64_t next_ LOCKSTEP_GUARDED_BY(mutex) = 1;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex) = false;
  bool stopped_ LOCKSTEP_GUARDED_BY(mutex) = false;

  Mutex callbacks_mutex_;
  ConditionVariable callbacks_came_;
  std::deque<std::function<void()>> callbacks_ LOCKSTEP_GUARDED_BY(callbacks_mutex_);
  bool callbacks_end_ LOCKSTEP_GUARDED_BY(callbacks_mutex_) = false;
  bool callbacks_ended_ LOCKSTEP_GUARDED_BY(callbacks_mutex_) = false;
  std::thread callbacks_thread_;

  Mutex inboxes_mutex_;
  uint64_t next_inbox_ LOCKSTEP_GUARDED_BY(inboxes_mutex_) = 1;
  std::map<uint64_t, std::weak_ptr<Inbox>> inboxes_ LOCKSTEP_GUARDED_BY(inboxes_mutex_);
};

std::shared_ptr<PoolCore> make_thread_pool(int workers);

std::shared_ptr<PoolCore> make_process_pool(const ProcessPoolOptions& options);

// The core of the process pool that was opened first among those still open; null if there is none.
// Thread-safe.
std::shared_ptr<PoolCore> open_process_pool();

}  // namespace detail
}  // namespace lockstep
