// What all kinds of pools have in common: tasks and their states, the queue, callbacks, and queues
// of messages. Users see pool.h and future.h.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/pool/host_memory.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/runtime.h"
#include "lockstep/parallel/process/worker_end.h"

namespace lockstep {

enum class TaskState { queued, running, finished, failed, cancelled };
// Whether it is one of the last three: then it stays.
inline bool has_ended(TaskState state) {
  return state != TaskState::queued && state != TaskState::running;
}
// "queued", "running", ...
const char* to_string(TaskState state);

struct SubmitOptions {
  int priority = 0;  // higher ones begin first; among equals whoever came first
  // How often it may be begun again when its worker was lost; not when the task threw. With more
  // than 0 it may have run more than once, or in part, when it finishes.
  int retries = 0;
  double limit = 0;   // seconds it may run before it is stopped as by cancel(); 0: any time
  uint64_t seed = 0;  // of task_random(); 0: the pool's
};

// What there is of a worker.
struct WorkerStatus {
  int64_t pid = 0;  // 0: a thread, or not started yet
  bool ready = false;
  uint64_t task = 0;  // the number of the one that it runs; 0: none
};

namespace detail {

// One task, guarded by its pool's mutex once it is submitted.
struct Task {
  uint64_t number = 0;  // in the order of submission, from 1
  FunctionId function;
  Bytes arguments;
  SubmitOptions options;
  int seat = -1;  // index of the worker that has to run it; -1: any
  // Called at once when it has failed or was cancelled, with the mutex held.
  std::function<void()> on_failure = {};

  TaskState state = TaskState::queued;
  int worker = -1;      // index of the one that runs or ran it
  int64_t pid = 0;      // of its process
  int attempts = 0;     // that were begun
  int lost_before = 0;  // workers that ended before they could begin it
  bool cancelling = false;
  std::string why;  // it was cancelled, where not by cancel()
  WorkerEnd lost;   // how its worker ended, where that ended it
  Bytes result;
  TaskError error;
  std::string diary;
  std::vector<std::function<void()>> after;  // when it has ended
};

using TaskPtr = std::shared_ptr<Task>;

// Why it is cancelled: " ran for longer than its limit of 0.5 s".
std::string past_limit(const Task& task);

// Messages from tasks, for one queue of the client.
class Inbox {
 public:
  virtual ~Inbox() = default;
  // Takes a message; false where there is no room now, so that it has to be brought again. `last`:
  // it cannot be, and is taken anyway.
  virtual bool take(Bytes& message, bool last) = 0;
};

class PoolCore {
 public:
  PoolCore();
  virtual ~PoolCore();

  // Thread-safe, all of these. submit() throws InvalidArgument for options out of range, a worker
  // that is none, and a pool that is closed.
  TaskPtr submit(const FunctionId& function, Bytes arguments, const SubmitOptions& options,
                 int seat = -1, std::function<void()> on_failure = {});
  void cancel(const TaskPtr& task);
  // Ends the process that runs it, at once, for that reason; a task that has not begun, and one of
  // a thread, is cancelled.
  void kill(const TaskPtr& task, const std::string& reason);
  // Until the condition, which is looked at under the mutex; false at the limit.
  bool wait(const TimeLimit& limit, const std::function<bool()>& holds);
  // Calls `after` once the task has ended, in the thread of callbacks.
  void then(const TaskPtr& task, std::function<void()> after);
  std::string diary(const TaskPtr& task);
  // Runs it in the thread of callbacks; here, once the pool is closed.
  void post(std::function<void()> callback);
  uint64_t add_inbox(std::weak_ptr<Inbox> inbox);
  void remove_inbox(uint64_t number);
  // A number that no inbox has.
  uint64_t next_number();
  // A message for the tasks of one worker. Waits while it takes none; false at the limit, and where
  // it is lost or not there.
  virtual bool send_to(int seat, uint64_t queue, std::span<const std::byte> message,
                       const TimeLimit& limit) = 0;
  // The same for whoever runs a task, also where that is the last thing it does for the pool;
  // without a bound for what waits, and so without waiting. Of processes alone: false elsewhere.
  virtual bool send_to(const TaskPtr&, uint64_t, std::span<const std::byte>) { return false; }
  // See Pool::attach_file().
  void attach(const std::string& name, const std::string& path);
  virtual int size() = 0;
  virtual void resize(int workers) = 0;
  // Memory that members of a block share; it is given back with the last copy.
  virtual SharedMemory& memory() = 0;
  // Ends everything: what has not ended is cancelled, callbacks are called. No thread of the pool
  // runs afterwards. Not from callbacks. Every pool calls it before it goes.
  void stop();
  virtual std::vector<WorkerStatus> seats() = 0;
  // What its workers on other hosts share; null where there are no such hosts.
  virtual HostMemory* hosts() { return nullptr; }
  // Strangers that tried to come in on the workers' control channel so far.
  virtual int64_t strangers() const { return 0; }
  // Somebody has taken messages: there may be room for others.
  virtual void room() = 0;

  std::mutex mutex;
  std::mutex blocks;  // tasks of two blocks come to all workers in the same order
  uint64_t seed = 0;

 protected:
  // With the mutex held:
  virtual int wanted() const = 0;                       // workers
  virtual void file_came(const std::string& name) = 0;  // was attached
  virtual void work_came() = 0;                         // look at the queue
  virtual void stop_running(const TaskPtr& task) = 0;  // it is wanted to stop, see Task::cancelling
  virtual std::string running_diary(const TaskPtr& task) = 0;
  // False where no process of its own runs it.
  virtual bool end_process_of(const TaskPtr&, const std::string&) { return false; }
  virtual void stop_seats(std::unique_lock<std::mutex>& lock) = 0;
  // The next task for a seat, of those for any or only of its own; null where there is none.
  TaskPtr take_next(int seat, bool only_own = false);
  bool any_queued(int seat, bool only_own = false) const;
  size_t queued() const { return queued_; }
  // Back to the queue, in front.
  void put_back(const TaskPtr& task);
  void finish(const TaskPtr& task, Bytes result);
  void fail(const TaskPtr& task, TaskError error);
  void end_as_cancelled(const TaskPtr& task);
  bool stopping() const { return stopping_; }
  // Fails what waits: for one seat, or all.
  void fail_queued(int seat, const TaskError& error);
  void fail_all_queued(const TaskError& error);
  const std::map<std::string, std::string>& files() const { return files_; }  // path by name
  // Seats that tasks wait for.
  std::vector<int> pinned_seats() const;
  // Gives a message to its inbox; true where it was taken, or nobody wants it any more.
  bool deliver(uint64_t inbox, Bytes& message, bool last = false);

 private:
  void end(const TaskPtr& task, TaskState state);
  void run_callbacks();
  void end_callbacks();
  void remove_queued(const TaskPtr& task);

  using Queue = std::map<int, std::deque<TaskPtr>, std::greater<>>;  // by priority
  std::deque<TaskPtr>& queue_of(const Task& task);
  std::condition_variable changed_;
  Queue any_;                    // for whoever is free
  std::map<int, Queue> pinned_;  // by seat
  std::map<std::string, std::string> files_;
  size_t queued_ = 0;
  uint64_t next_ = 1;
  bool stopping_ = false, stopped_ = false;

  std::mutex callbacks_mutex_;
  std::condition_variable callbacks_came_;
  std::deque<std::function<void()>> callbacks_;
  bool callbacks_end_ = false, callbacks_ended_ = false;
  std::thread callbacks_thread_;

  std::mutex inboxes_mutex_;
  uint64_t next_inbox_ = 1;
  std::map<uint64_t, std::weak_ptr<Inbox>> inboxes_;
};

std::shared_ptr<PoolCore> make_thread_pool(int workers);

// A host of a pool. "": this machine.
struct PoolHost {
  std::string name;
  int workers = 1;
};

struct ProcessPoolOptions {
  int workers = 1, threads = 1;  // of all hosts; of each worker
  double grace = 5;
  uint64_t memory_bytes = 0;
  std::vector<std::pair<std::string, std::string>> environment = {};
  // Where they run, in this order; none: all here. Such a pool keeps its size.
  std::vector<PoolHost> hosts = {};
  std::string launch = {};   // see HostProcessOptions; "": its default
  std::string address = {};  // of this machine, where the hosts find it; "": towards the first
};
std::shared_ptr<PoolCore> make_process_pool(const ProcessPoolOptions& options);

}  // namespace detail
}  // namespace lockstep
