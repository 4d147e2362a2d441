// A pool of worker processes, of this machine and of other hosts. Orders and reports go through
// memory that client and worker share; one thread takes reports and hands out what waits, others
// start processes and hear of their ends.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/parallel/pool/client_seat.h"
#include "lockstep/parallel/pool/host_line.h"
#include "lockstep/parallel/pool/host_links.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/process_seat.h"
#include "lockstep/parallel/pool/process_warden.h"
#include "lockstep/parallel/pool/restarts.h"

namespace lockstep::detail {

// Made by make_process_pool().
class ProcessSeats final : public PoolCore {
 public:
  explicit ProcessSeats(const ProcessPoolOptions& options);
  ~ProcessSeats() override { stop(); }

  int size() override;
  void resize(int workers) override;
  bool send_to(int index, uint64_t queue, std::span<const std::byte> message,
               const TimeLimit& limit) override;
  bool send_to(const TaskPtr& task, uint64_t queue, std::span<const std::byte> message) override;
  HostMemory* hosts() override { return options_.hosts.empty() ? nullptr : &links_; }
  int64_t strangers() const override { return strangers_.load() + far_strangers_.load(); }
  SharedMemory& memory() override { return memory_; }
  void room() override { bell_.ring(); }
  std::vector<WorkerStatus> seats() override;

 private:
  using Seat = ClientSeat;
  using Sent = SentTask;

  Seat* seat_of(int index) const;
  Seat* seat_that_runs(const TaskPtr& task) const;
  // False where nobody will take it.
  static bool post(Seat& seat, const Bytes& message);
  void open_seat(int index);
  void end_process(Seat& seat, const std::string& reason);

  // Orders, with the mutex held: process_pool_core.cpp.
  int wanted() const override { return wanted_; }
  void file_came(const std::string& name) override;
  // Before all tasks that are given after it.
  void tell_of_file(Seat& seat, const std::string& name);
  void work_came() override;
  void hand_out();
  // Who gets the next task: the one with the fewest, if any may have another.
  Seat* seat_for_more() const;
  void give(Seat& seat, TaskPtr task);
  void begin_first(Seat& seat);
  // Takes back what a worker has not begun.
  void take_back(Seat& seat);
  // Whoever is free gets what others have ahead of time.
  void rebalance();
  void stop_running(const TaskPtr& task) override;
  void stop_first(Seat& seat);
  bool end_process_of(const TaskPtr& task, const std::string& reason) override;
  std::string running_diary(const TaskPtr& task) override;

  // Reports and losses: process_pool_reports.cpp.
  void take_reports();
  void reopen_seats();
  // Somebody who waits for a worker that cannot be started hears why.
  void start_failed(int index, const WorkerEnd& end);
  // Tasks for workers that are no more, or all, when no process can be started any more.
  void fail_what_nobody_takes();
  // Takes what has come, as far as queues have room, but not too much at a time; whether there may
  // be more.
  bool drain(Seat& seat);
  // What was accepted from somebody who ends now goes beyond the queue's bound.
  bool deliver_held(Seat& seat);
  void take(Seat& seat, std::span<const std::byte> rest);
  void end_first(Seat& seat, Report what, EndNote note);
  // What becomes of its tasks, when a process has ended, and who takes its place.
  void bury(Seat& seat);
  // Ends who does not stop; seconds until it has to be looked at again.
  double look_after(Seat& seat);
  // What queues have accepted, when nobody says anything any more; tasks have ended.
  void drain_messages(Seat& seat);
  void stop_seats(std::unique_lock<std::mutex>& lock) override;

  // What is told by those who have the processes.
  WardenReports reports();
  HostsTold told_by_hosts();
  // Of the warden: what runs on this machine.
  ProcessPoolOptions own_options() const;

  const ProcessPoolOptions options_;
  SharedMemory memory_{"lockstep-pool"};
  SharedPlace bell_place_;
  SharedRegion bell_memory_;
  Bell& bell_;  // rung for the clerk
  int wanted_ = 0;
  Restarts restarts_;
  std::string broken_;  // why there are no workers any more
  std::atomic<int64_t> strangers_{0}, far_strangers_{0};
  std::vector<std::unique_ptr<Seat>> seats_;
  ProcessWarden warden_{memory_, own_options(), reports()};
  HostLinks links_{memory_, bell_place_, options_, told_by_hosts()};
  std::thread clerk_;
};

}  // namespace lockstep::detail
