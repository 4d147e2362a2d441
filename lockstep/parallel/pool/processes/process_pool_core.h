// A pool of worker processes on this machine and on other hosts. Orders and reports travel through
// memory that the client shares with each worker. One thread processes reports and hands out tasks.
// Other threads start processes and monitor their ends.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/processes/restarts.h"
#include "lockstep/parallel/pool/processes/worker_slot.h"
#include "lockstep/parallel/process/host_support.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/slot_memory.h"
#include "lockstep/parallel/process/supervisor.h"

namespace lockstep::detail {

// Created by make_process_pool().
class ProcessSlots final : public PoolCore {
 public:
  explicit ProcessSlots(const ProcessPoolOptions& options);
  ~ProcessSlots() override { stop(); }

  int size() override;
  void resize(int workers) override;
  bool send_to(int index, uint64_t queue, std::span<const std::byte> message,
               const TimeLimit& limit) override;
  bool send_to(const TaskPtr& task, uint64_t queue, std::span<const std::byte> message) override;
  HostMemory* hosts() override { return options_.hosts.empty() ? nullptr : hosts_.get(); }
  int64_t strangers() const override { return strangers_.load(); }
  SharedMemory& memory() override { return memory_; }
  void room() override { bell_.ring(); }
  std::vector<WorkerStatus> slots() override;

 private:
  using Slot = WorkerSlot;
  using Sent = SentTask;

  Slot* slot_of(int index) const LOCKSTEP_REQUIRES(mutex);
  Slot* slot_that_runs(const TaskPtr& task) const LOCKSTEP_REQUIRES(mutex);
  // False if the worker can no longer take messages.
  bool post(Slot& slot, const Bytes& message) LOCKSTEP_REQUIRES(mutex);
  void open_slot(int index) LOCKSTEP_REQUIRES(mutex);
  void end_process(Slot& slot, const std::string& reason) LOCKSTEP_REQUIRES(mutex);

  // Orders: process_pool_core.cpp.
  int wanted() const override LOCKSTEP_REQUIRES(mutex) { return wanted_; }
  std::string broken() const override LOCKSTEP_REQUIRES(mutex) { return broken_; }
  void share_file(const std::string& name, const std::string& path) override
      LOCKSTEP_EXCLUDES(mutex);
  void file_came(const std::string& name) override LOCKSTEP_REQUIRES(mutex);
  // The worker learns of the file before any task that it is given later.
  void send_file(Slot& slot, const std::string& name) LOCKSTEP_REQUIRES(mutex);
  void work_came() override LOCKSTEP_REQUIRES(mutex);
  void hand_out() LOCKSTEP_REQUIRES(mutex);
  // The slot that gets the next task: the one with the fewest tasks among those that may have
  // another. Null if there is none.
  Slot* slot_for_more() const LOCKSTEP_REQUIRES(mutex);
  void give(Slot& slot, TaskPtr task) LOCKSTEP_REQUIRES(mutex);
  void begin_first(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  // Takes back the tasks that a worker has not begun.
  void take_back(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  // If a worker is free, takes back tasks that others hold ahead of time, and hands them out again.
  void rebalance() LOCKSTEP_REQUIRES(mutex);
  void stop_running(const TaskPtr& task) override LOCKSTEP_REQUIRES(mutex);
  void stop_first(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  bool end_process_of(const TaskPtr& task, const std::string& reason) override
      LOCKSTEP_REQUIRES(mutex);
  std::string running_diary(const TaskPtr& task) override LOCKSTEP_REQUIRES(mutex);

  // Reports and losses: process_pool_reports.cpp.
  void take_reports() LOCKSTEP_EXCLUDES(mutex);
  void reopen_slots() LOCKSTEP_REQUIRES(mutex);
  // Plans another start. If starts keep failing, fails the tasks that wait for this worker with the
  // reason.
  void start_failed(int index, const WorkerEnd& end) LOCKSTEP_REQUIRES(mutex);
  // Fails tasks for workers that no longer exist, or all tasks if no process can be started any
  // more.
  void fail_tasks_without_workers() LOCKSTEP_REQUIRES(mutex);
  // The slots that may have reports: those of this machine, and those of other hosts that have
  // announced a change.
  std::vector<Slot*> slots_to_drain() LOCKSTEP_REQUIRES(mutex);
  // Handles pending reports, a limited number at a time; stops early if an inbox is full. Returns
  // whether more may be available.
  bool drain(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  // Delivers the held message. If the worker is ending, the message may exceed the inbox's limit.
  bool deliver_held(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  void take(Slot& slot, std::span<const std::byte> rest) LOCKSTEP_REQUIRES(mutex);
  void end_first(Slot& slot, Report what, EndNote note) LOCKSTEP_REQUIRES(mutex);
  // Decides about the tasks of a process that has ended, and plans its replacement.
  void bury(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  // Enforces the limits of the running task, and ends a process that does not stop. Returns the
  // seconds until the next check.
  double look_after(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  // Delivers the messages that were accepted before the pool stopped. All tasks have ended by then.
  void drain_messages(Slot& slot) LOCKSTEP_REQUIRES(mutex);
  void stop_slots() override LOCKSTEP_REQUIRES(mutex);

  // Callbacks for both supervisors.
  SupervisorEvents reports();
  // The supervisor of the worker with this index.
  Supervisor& supervisor_of(int index);
  // Whether the worker with this index runs on another host.
  bool far(int index) const { return hosts_ && hosts_->far(index); }
  // The supervisor of the workers on other hosts, or null. Completes options_.
  std::unique_ptr<RemoteSupervisor> make_hosts();
  // Options of the local supervisor: the workers of this machine.
  ProcessPoolOptions own_options() const;

  ProcessPoolOptions options_;  // const after hosts_ is made
  SharedMemory memory_{"lockstep-pool"};
  SharedRange bell_range_;
  SharedRegion bell_memory_;
  Bell& bell_;  // wakes report_thread_
  int wanted_ LOCKSTEP_GUARDED_BY(mutex) = 0;
  Restarts restarts_ LOCKSTEP_GUARDED_BY(mutex);
  // Paths for workers on other hosts, by name.
  std::map<std::string, std::string> shared_files_ LOCKSTEP_GUARDED_BY(mutex);
  // Why there are no workers any more.
  std::string broken_ LOCKSTEP_GUARDED_BY(mutex);
  std::atomic<int64_t> strangers_{0};
  std::vector<std::unique_ptr<Slot>> slots_ LOCKSTEP_GUARDED_BY(mutex);
  // The same, without those that are retiring, by the worker's index; and all by offset.
  std::map<int, Slot*> by_index_ LOCKSTEP_GUARDED_BY(mutex);
  std::map<size_t, Slot*> by_offset_ LOCKSTEP_GUARDED_BY(mutex);
  std::map<uint32_t, Slot*> by_worker_ LOCKSTEP_GUARDED_BY(mutex);  // by the supervisors' numbers
  // Offsets of slots on other hosts that have reports, or room for orders.
  Mutex rung_mutex_;
  std::vector<size_t> rung_ LOCKSTEP_GUARDED_BY(rung_mutex_);
  const std::unique_ptr<RemoteSupervisor> hosts_ = make_hosts();  // before own_options()
  LocalSupervisor supervisor_{memory_, own_options(), reports()};
  std::thread report_thread_;
};

}  // namespace lockstep::detail
