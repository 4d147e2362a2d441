// The workers of a training as its client sees them: which are present, how they are started,
// addressed and replaced.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/workers/pool_workers.h"
#include "lockstep/train/workers/training_workers.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// A present worker.
struct WorkerMember {
  enum class Phase { building, ready, member };
  // Seconds for a worker to build its problem.
  static constexpr double kReadyLimit = 600;

  Phase phase = Phase::building;
  int64_t pid = 0;       // 0: it has not begun
  int slot = 0;          // its index in the pool; determines its cores and its load
  bool built = false;    // it waits for data that its host must have
  bool leaving = false;  // it is lent no longer: it goes before the next iteration, or has gone
  TimeLimit limit{kReadyLimit};
  ReservedRange status_range;
  SharedRegion status_memory;
  bool halted = true;     // it computes nothing until a group is formed
  int64_t finished = -1;  // the iteration whose values it has; -1: none

  // Ends the worker's waits for a store that does not answer (on this machine).
  void stop_retries() const {
    reinterpret_cast<TrainingWorkerStatus*>(status_memory.get())->stop.store(1);
  }
  const TrainingWorkerStatus& status() const {
    return *reinterpret_cast<const TrainingWorkerStatus*>(status_memory.get());
  }
};

// One thread at a time.
class WorkerMembership {
 public:
  using Member = WorkerMember;

  // Starts the workers that the options describe.
  WorkerMembership(const IterationsSetup& setup, const Call<TrainingProblem>& problem,
                   const TrainingWorkers& workers);
  // Ends all workers, before the memory that they share is freed.
  void end() { workers_.end(); }

  std::map<uint32_t, Member>& members() { return members_; }  // by number
  const std::map<uint32_t, Member>& members() const { return members_; }
  Member& at(uint32_t worker) { return members_.at(worker); }
  // Index of the member's host in the pool; 0 is this machine.
  int host_of(const Member& m) const { return workers_.host_of(m.slot); }
  std::string name_of_host(const Member& m) const;
  detail::PoolCore& pool() { return pool_; }
  bool own_pool() const { return workers_.own(); }  // opened for this training
  bool on_devices() const { return !devices_.front().is_cpu(); }

  // Starts workers in absent slots and, if `replace`, in the slots of lost workers. Ends workers
  // that are not ready in time. Returns the next event, if one arrives within `seconds`. Throws
  // Error if there are no workers left.
  std::optional<PoolWorkerEvent> wait(double seconds, bool replace);
  // The next event, if there is one already. Does nothing else.
  std::optional<PoolWorkerEvent> next() { return workers_.wait(TimeLimit(0)); }
  // Sends an order. Returns false if the worker cannot be reached.
  template <class Order>
  bool order(uint32_t worker, const Order& what) {
    return send(worker, encode(WorkerOrder(what)));
  }
  // The same for an encoded WorkerOrder.
  bool send(uint32_t worker, std::span<const std::byte> order) {
    return workers_.send(worker, order);
  }
  // Ends the worker's process; see PoolWorkers::kill().
  void kill(uint32_t worker, const std::string& reason) { workers_.kill(worker, reason); }
  // Removes the worker that this event reports as lost. Its slot is free for a replacement.
  Member remove(const PoolWorkerEvent& event);

  // Checks that the worker computes the same problem with the same numerics. Throws
  // InvalidArgument if not.
  void take(uint32_t worker, const ReadyReport& r);
  void take(const NoticeReport& r);
  const std::optional<ReadyReport>& ready() const { return ready_; }  // of the first worker
  // Whether a worker waits to join, or to leave while others remain.
  bool changes() const;
  // The member leaves: its process goes on without it.
  void release(uint32_t worker);
  // Whether any worker but this one has begun.
  bool others_began(uint32_t worker) const;
  // At the beginning: whether to wait for a worker. Workers that have other tasks for a long time
  // are not waited for; they join when they are free.
  bool awaits_first();
  // Seconds without progress after which a worker counts as hanging.
  double limit() const;
  // All workers that have begun, including lost ones; as last copied from other hosts.
  std::vector<WorkerSummary> summaries() const;

 private:
  void start(int slot, bool replaces = false);
  void start_replacements(bool replace);
  void follow_lending();
  WorkerSummary summary_of(uint32_t worker, const Member& m) const;
  void end_late();
  void look_for_strangers();
  double present_limit() const;

  const IterationsSetup& setup_;
  const std::vector<Device> devices_;
  PoolWorkers workers_;
  detail::PoolCore& pool_ = workers_.pool();
  std::map<uint32_t, Member> members_;
  std::vector<WorkerSummary> gone_;
  // Derived from the problem, the same for all workers.
  TrainingTask task_;
  Digest names_;
  std::optional<ReadyReport> ready_;
  std::vector<int> free_slots_;    // of lost workers
  std::vector<int> absent_slots_;  // slots that the pool has no worker for at present
  const std::function<std::vector<int>()> lent_;  // see TrainingControl::workers
  bool strangers_reported_ = false, busy_reported_ = false;
  std::string awaited_;                // what the hosts wait for, as last reported
  std::set<std::string> noticed_;      // notices of workers; each is reported once
  std::optional<TimeLimit> patience_;  // the wait for workers with other tasks
  mutable std::optional<TimeLimit> limit_known_;
  mutable double limit_ = 0;
};

}  // namespace lockstep
