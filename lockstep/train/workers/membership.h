// The worker processes of a training as its client sees them: who is there, who is lost, and the
// groups they form.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/workers/client_group.h"
#include "lockstep/train/workers/pool_workers.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

struct WorkerIterationsSetup {
  Call<TrainingProblem> problem;
  const TrainingOptions& options;  // resolved
  const TrainingData& data;        // what the problem's is, too
  std::function<double(int64_t)> learning_rate = {};
  std::function<void(const WorkerChange&)> tell = {};
  std::function<void(const std::string&)> notice = {};  // anything else worth a line
  // Whose processes compute; null: one that is opened for it.
  std::shared_ptr<detail::PoolCore> pool = {};
  std::vector<Device> devices = {Device{}};  // on which they compute, in turn
  std::function<bool()> stop = {};  // whether to wait for workers no longer that are elsewhere
  std::function<bool()> interrupted = {};  // the same for all
};

// "worker 3"
inline std::string name_of_worker(uint32_t worker) { return "worker " + std::to_string(worker); }

// One thread at a time. Members are for WorkerIterations, which grants iterations to the group that
// stands.
struct WorkerMembership {
  // Until a worker has its problem built, and until it answers between iterations; seconds.
  static constexpr double kReadyLimit = 600, kAnswerLimit = 10;
  // How long the first who are ready wait for those who have other things to do, seconds.
  static constexpr double kBusyLimit = 2;

  struct Member {
    enum class Phase { building, ready, member };
    Phase phase = Phase::building;
    int64_t pid = 0;     // 0: it has not begun
    int slot = 0;        // its index in the pool: its cores and its load
    bool built = false;  // it waits for what its host has to have
    TimeLimit limit{kReadyLimit};
    ReservedPlace board;
    SharedRegion board_memory;
    bool halted = true;     // it computes nothing until a group is formed
    int64_t finished = -1;  // the iteration whose values it has; -1: none

    const WorkerBoard& on_board() const {
      return *reinterpret_cast<const WorkerBoard*>(board_memory.get());
    }
  };

  // Of the pool's hosts, 0 this machine.
  int host_of(const Member& m) const { return workers.host_of(m.slot); }
  std::string name_of_host(const Member& m) const {
    return host_of(m) == 0 ? "" : pool.hosts()->status(host_of(m)).name;
  }
  // Deals the batches of a validation to the group's hosts, whose areas are cleared.
  void partition_batches(Evaluator& evaluator);
  // Brings what other hosts have evaluated. False where one is lost.
  bool collect_batches(Evaluator& evaluator);
  void call_off_batches();
  // Brings the boards of other hosts' workers here, as they are now.
  void collect_boards();
  // Batches that workers have begun in validations, ever.
  int64_t batches_begun() const;
  // The area of this machine's workers, and of all in the end.
  SharedRegion evaluation;

  // Starts the workers of the options.
  explicit WorkerMembership(const WorkerIterationsSetup& setup);
  ~WorkerMembership();
  WorkerMembership(const WorkerMembership&) = delete;
  WorkerMembership& operator=(const WorkerMembership&) = delete;

  // Handles one event, if there is one within these seconds. Throws what a worker threw.
  bool step(double seconds);
  // Forms a group of all who are there, from the last iteration that anybody finished.
  void regroup();
  // A member writes its state where all find it. False where it is lost instead.
  bool publish(uint32_t source);
  // Whether somebody waits to take part.
  bool joiners() const;
  // Ends those of the group that the others wait for.
  void end_hanging();
  // Seconds without progress after which somebody hangs.
  double limit() const;
  // Sends an order. False where the worker is not to be reached.
  template <class Order>
  bool order(uint32_t worker, const Order& what) {
    return workers.send(worker, encode(WorkerOrder(what)));
  }

  const WorkerIterationsSetup setup;
  // Of the memory that is shared with them; given back in the end.
  SharedPlace reserve(size_t bytes);

  PoolWorkers workers;
  detail::PoolCore& pool = workers.pool();
  SharedMemory& memory = pool.memory();
  std::vector<ReservedPlace> reserved;
  std::map<uint32_t, Member> members;
  std::vector<WorkerSummary> gone;

  // Of the problem, the same for all.
  TrainingTask task;
  Digest names;
  BeginOrder begin;
  SharedRegion states[2];
  std::optional<ReadyReport> ready;  // of the first

  // Another host that has workers; see membership_hosts.cpp.
  struct Host {
    uint64_t presence = 0;  // of the process there, that was prepared
    uint64_t images = 0;    // the last of their pushes to it
    ReservedPlace evaluation;
    SharedRegion evaluation_memory;
    bool missed = false;  // it has not come back, which was told
  };
  std::map<int, Host> hosts;  // by number
  bool may_prepare = false;   // images are read, and all is known
  // What of a validation each host's area holds: batches from the first to before the second.
  std::map<int, std::pair<int64_t, int64_t>> partitioned_batches;

  // The present group.
  int64_t generation = 0;
  std::vector<uint32_t> ranks;
  std::optional<ClientGroup> group;
  int64_t formed = -1;  // after which iteration
  bool broken = false;

  // Iterations.
  int64_t granted = 0, received = 0, taken = 0;  // the last of each
  int64_t furthest = 0;                          // ever begun by somebody who was lost, or received
  std::map<int64_t, IterationOutcome> records;   // not yet taken
  std::map<int64_t, IterationOutcome> arrived;   // whose predecessors have not arrived
  std::map<int64_t, Digest> digests;             // of all since the published state
  int published = 0;                             // which of the states is good
  int64_t published_iteration = 0;
  uint32_t publisher = 0;  // who was asked for its state
  std::optional<int64_t> publishing;
  std::optional<std::set<uint32_t>> validating;  // who has not said that it is ready
  TimeLimit::Clock::time_point progress = TimeLimit::Clock::now();
  double iteration_seconds = 0;

  // Losses.
  struct Loss {
    WorkerChange change;
    TimeLimit::Clock::time_point noticed;
  };
  std::vector<Loss> losses;          // since the group broke
  std::vector<int> free_slots;       // of lost workers
  std::vector<int> absent_slots;     // that the pool has no worker for now
  std::optional<TimeLimit> restart;  // when the next may be started
  // Without an iteration in between: by their own fault, or hanging; and ended from outside.
  int64_t losses_in_a_row = 0, kills_in_a_row = 0;
  int meetings_in_a_row = 0;  // that hosts have failed to hold
  bool strangers_told = false, busy_told = false;
  std::set<std::string> noticed;      // what workers had to say, which is told once
  std::optional<TimeLimit> patience;  // with those who have other things to do
  ShardDeaths deaths;
  std::vector<ShardOfIteration> alone;  // what the present group computes so
  std::map<ShardOfIteration, int> disagreements;
  int64_t disagreed = 0;  // the last generation that did

 private:
  void look_for_strangers();
  void start_worker(int slot, bool replaces = false);
  bool await_first();
  void handle(const PoolWorkerEvent& event);
  void handle_loss(const PoolWorkerEvent& event);
  void miss_host(const Member& m, const std::string& how);
  void advance_to(int64_t iteration);
  void blame(const Member& m, const std::string& how);
  void count_loss(const PoolWorkerEvent& event);
  std::string observations_of(int64_t iteration, int64_t shard) const;
  void take(uint32_t worker, const ReadyReport& r);
  void take(uint32_t worker, const RecordsReport& r);
  void take(uint32_t worker, const HaltedReport& r);
  void take(uint32_t worker, const DisagreementReport& r);
  void take(uint32_t worker, const PublishedReport& r);
  void take(uint32_t worker, const ValidatedReport& r);
  void take(uint32_t worker, const MeetReport& r);
  void take(uint32_t worker, const BrokenReport& r);
  void take(uint32_t worker, const NoticeReport& r);
  void start_replacements();
  void end_group();
  // Whether the group's members look for each other, or for each other's devices.
  bool far() const { return group->first_ranks().size() > 1 || !setup.devices.front().is_cpu(); }
  void note_failed_meeting(const std::string& why);
  bool prepared(const Member& m);
  void settle();
  BeginOrder begin_of(const Member& m);
  bool bring_state(int64_t base, bool from_state);
  SharedPlace board_of(const Member& m) const;
  bool await_rest();
  bool form(int64_t base, bool from_state);
};

}  // namespace lockstep
