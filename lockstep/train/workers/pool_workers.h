// The workers of a training as tasks of a pool of processes. The pool is open already or is opened
// for the training.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// An event of a worker's task. (SupervisorEvents concern its process, which may have other tasks
// before and after.)
struct PoolWorkerEvent {
  enum class Kind {
    message,
    failed,  // its task threw `error`
    lost,    // its process has ended, or it was cancelled; `how` says how
  };
  Kind kind = Kind::message;
  uint32_t worker = 0;
  int64_t pid = 0;         // of its process; 0: it never began
  bool cancelled = false;  // it was lost because it was cancelled
  Bytes content = {};
  TaskError error = {};
  std::string how = {};
  bool own_fault = false, outside = false;  // see WorkerEnd
  std::string printed = {};                 // the last output of a lost worker
};

// A pool with the processes and hosts that the (resolved) options name.
std::shared_ptr<detail::PoolCore> open_training_pool(const TrainingOptions& options);

// One thread at a time.
class PoolWorkers {
 public:
  // If `pool` is null, opens a pool for the options.
  // Otherwise uses workers of `pool`, which may have other tasks before and after.
  PoolWorkers(std::shared_ptr<detail::PoolCore> pool, const TrainingOptions& options);
  ~PoolWorkers();
  PoolWorkers(const PoolWorkers&) = delete;
  PoolWorkers& operator=(const PoolWorkers&) = delete;

  // Starts training on the worker with this index. Returns its number here; numbers are not reused.
  // Returns none if the pool has no such worker any more. A replacement of a lost worker goes
  // before the tasks that wait there.
  std::optional<uint32_t> start(int slot, TrainingTask task, bool replaces);
  // Acquires several workers atomically, so that two trainings or blocks that start at the same
  // time cannot each hold a part of what both need.
  void start_together(const std::function<void()>& starts);
  // Number of workers that the pool has at present.
  int present() const { return pool_->size(); }
  // Returns false if the worker cannot be reached.
  bool send(uint32_t worker, std::span<const std::byte> content);
  // Returns the next event; none when the limit is reached. Messages that a worker sent before it
  // was lost come first.
  std::optional<PoolWorkerEvent> wait(const TimeLimit& limit);
  // Ends the worker's process immediately. It is then lost for this reason ("hung"; "": as its
  // process ended).
  void kill(uint32_t worker, const std::string& reason);
  // Ends the worker's task. Its process is free for others then.
  void cancel(uint32_t worker);
  // 0 if the worker still has another task or is lost.
  int64_t pid(uint32_t worker) const;
  // Whether the pool's worker has another task first. `slots`: those of the pool.
  bool busy(uint32_t worker, const std::vector<WorkerStatus>& slots) const;
  // Ends all tasks. Afterwards the pool's workers are free, or lost and replaced.
  void end();
  bool own() const { return own_; }  // opened for this training
  // Number of strangers on the control channel since the beginning.
  int64_t strangers() const { return pool_->strangers() - strangers_before_; }
  detail::PoolCore& pool() { return *pool_; }
  // The host of a worker's index; 0: this machine.
  int host_of(int slot) const { return pool_->hosts() ? pool_->hosts()->host_of(slot) : 0; }

 private:
  struct Events {
    Mutex mutex;
    ConditionVariable changed;
    std::deque<PoolWorkerEvent> waiting LOCKSTEP_GUARDED_BY(mutex);
    void push(PoolWorkerEvent event) LOCKSTEP_EXCLUDES(mutex);
  };
  class Reports;
  struct Worker {
    detail::TaskPtr task;
    int slot = 0;
    uint64_t orders = 0, reports = 0;  // queues
    std::shared_ptr<Reports> inbox;
    std::string reason = {};  // why the client ended it
  };

  bool ended(double seconds);

  const bool own_;
  const int size_, threads_;
  const std::shared_ptr<detail::PoolCore> pool_;
  const int64_t strangers_before_ = pool_->strangers();
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();
  std::map<uint32_t, Worker> workers_;
  uint32_t next_ = 1;
};

}  // namespace lockstep
