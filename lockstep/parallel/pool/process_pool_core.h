// A pool of worker processes on this machine and on other hosts. Orders and reports travel through
// memory that the client shares with each worker. One thread processes reports and hands out tasks.
// Other threads start processes and monitor their ends.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/restarts.h"
#include "lockstep/parallel/pool/worker_slot.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/slot_memory.h"
#include "lockstep/parallel/process/supervisor.h"
#include "lockstep/parallel/remote/remote_hosts.h"
#include "lockstep/parallel/remote/remote_hosts_thread.h"

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
  HostMemory* hosts() override { return options_.hosts.empty() ? nullptr : &hosts_; }
  int64_t strangers() const override { return strangers_.load() + far_strangers_.load(); }
  SharedMemory& memory() override { return memory_; }
  void room() override { bell_.ring(); }
  std::vector<WorkerStatus> slots() override;

 private:
  using Slot = WorkerSlot;
  using Sent = SentTask;

  Slot* slot_of(int index) const;
  Slot* slot_that_runs(const TaskPtr& task) const;
  // False if the worker can no longer take messages.
  static bool post(Slot& slot, const Bytes& message);
  void open_slot(int index);
  void end_process(Slot& slot, const std::string& reason);

  // Orders, with the mutex held: process_pool_core.cpp.
  int wanted() const override { return wanted_; }
  void file_came(const std::string& name) override;
  // The worker learns of the file before any task that it is given later.
  void tell_of_file(Slot& slot, const std::string& name);
  void work_came() override;
  void hand_out();
  // The slot that gets the next task: the one with the fewest tasks among those that may have
  // another. Null if there is none.
  Slot* slot_for_more() const;
  void give(Slot& slot, TaskPtr task);
  void begin_first(Slot& slot);
  // Takes back the tasks that a worker has not begun.
  void take_back(Slot& slot);
  // If a worker is free, takes back tasks that others hold ahead of time, and hands them out again.
  void rebalance();
  void stop_running(const TaskPtr& task) override;
  void stop_first(Slot& slot);
  bool end_process_of(const TaskPtr& task, const std::string& reason) override;
  std::string running_diary(const TaskPtr& task) override;

  // Reports and losses: process_pool_reports.cpp.
  void take_reports();
  void reopen_slots();
  // Plans another start. If starts keep failing, fails the tasks that wait for this worker with the
  // reason.
  void start_failed(int index, const WorkerEnd& end);
  // Fails tasks for workers that no longer exist, or all tasks if no process can be started any
  // more.
  void fail_what_nobody_takes();
  // Processes arrived reports as far as inboxes have room, but a limited number at a time. Returns
  // whether more may be available.
  bool drain(Slot& slot);
  // Delivers the held message. If the worker is ending, the message may exceed the inbox's limit.
  bool deliver_held(Slot& slot);
  void take(Slot& slot, std::span<const std::byte> rest);
  void end_first(Slot& slot, Report what, EndNote note);
  // Decides about the tasks of a process that has ended, and plans its replacement.
  void bury(Slot& slot);
  // Enforces the limits of the running task, and ends a process that does not stop. Returns the
  // seconds until the next check.
  double look_after(Slot& slot);
  // Delivers the messages that were accepted before the pool stopped. All tasks have ended by then.
  void drain_messages(Slot& slot);
  void stop_slots(std::unique_lock<std::mutex>& lock) override;

  // Callbacks for the supervisor and for the remote hosts.
  SupervisorEvents reports();
  HostEvents told_by_hosts();
  // Options of the supervisor: the workers of this machine.
  ProcessPoolOptions own_options() const;

  const ProcessPoolOptions options_;
  SharedMemory memory_{"lockstep-pool"};
  SharedPlace bell_place_;
  SharedRegion bell_memory_;
  Bell& bell_;  // wakes report_thread_
  int wanted_ = 0;
  Restarts restarts_;
  std::string broken_;  // why there are no workers any more
  std::atomic<int64_t> strangers_{0}, far_strangers_{0};
  std::vector<std::unique_ptr<Slot>> slots_;
  Supervisor supervisor_{memory_, own_options(), reports()};
  RemoteHosts hosts_{memory_, bell_place_, options_, told_by_hosts()};
  std::thread report_thread_;
};

}  // namespace lockstep::detail
