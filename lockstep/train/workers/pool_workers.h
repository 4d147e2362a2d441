// Where the workers of a training come from: processes of a pool, which is open already or opened
// for this training.
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

struct PoolWorkerEvent {
  enum class Kind {
    message,
    failed,  // its task threw `error`
    lost,    // its process has ended, or it was cancelled; `how` says how
  };
  Kind kind = Kind::message;
  uint32_t worker = 0;
  int64_t pid = 0;         // of its process; 0: it never began
  bool cancelled = false;  // is how it was lost
  Bytes content = {};
  TaskError error = {};
  std::string how = {};
  bool own_fault = false, outside = false;  // see WorkerEnd
  std::string printed = {};                 // what a lost one has printed last
};

// One thread at a time.
class PoolWorkers {
 public:
  // Null: opens a pool for itself, of as many processes as the options (resolved) say. Else those
  // are among its workers; what else they have to do comes before or after.
  PoolWorkers(std::shared_ptr<detail::PoolCore> pool, const TrainingOptions& options);
  ~PoolWorkers();
  PoolWorkers(const PoolWorkers&) = delete;
  PoolWorkers& operator=(const PoolWorkers&) = delete;

  // Has the worker with this index train. Returns its number here; none is used twice. None where
  // the pool has no such worker any more. What replaces a lost one goes before all that waits
  // there.
  std::optional<uint32_t> start(int slot, TrainingTask task, bool replaces);
  // Starts several so that of two trainings, or blocks, one has all workers before the other.
  void start_together(const std::function<void()>& starts);
  // Workers that the pool has now.
  int present() const { return pool_->size(); }
  // False where it cannot be reached.
  bool send(uint32_t worker, std::span<const std::byte> content);
  // The next event; none at the limit. What a worker said before it was lost comes before that.
  std::optional<PoolWorkerEvent> wait(const TimeLimit& limit);
  // Ends its process at once; it is lost then, for that reason ("hung"; "": as its end says).
  void kill(uint32_t worker, const std::string& reason);
  // 0: it does something else yet, or is lost.
  int64_t pid(uint32_t worker) const;
  // Whether the pool's worker has another task to do first.
  bool busy(uint32_t worker) const;
  // Ends all tasks: the pool's workers are free, or lost and replaced, afterwards.
  void end();
  bool own() const { return own_; }  // opened for this training
  // That tried to come in on the control channel since the beginning.
  int64_t strangers() const { return pool_->strangers() - strangers_before_; }
  detail::PoolCore& pool() { return *pool_; }
  // Of a worker's index: 0: this machine.
  int host_of(int slot) const { return pool_->hosts() ? pool_->hosts()->host_of(slot) : 0; }

 private:
  struct Events {
    Mutex mutex;
    ConditionVariable came;
    std::deque<PoolWorkerEvent> waiting LOCKSTEP_GUARDED_BY(mutex);
    void push(PoolWorkerEvent event) LOCKSTEP_EXCLUDES(mutex);
  };
  class Reports;
  struct Worker {
    detail::TaskPtr task;
    int slot = 0;
    uint64_t orders = 0, reports = 0;  // queues
    std::shared_ptr<Reports> inbox;
    std::string reason = {};  // why it was ended from here
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
