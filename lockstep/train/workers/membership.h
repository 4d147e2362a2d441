// The client's view of the worker processes of a training: present and lost workers, and the groups
// that they form.
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
  const TrainingData& data;        // the same as in the problem
  std::function<double(int64_t)> learning_rate = {};
  std::function<void(const WorkerChange&)> on_change = {};
  std::function<void(const std::string&)> notice = {};  // other messages for the user
  // The pool whose processes compute; null: a new pool for this training.
  std::shared_ptr<detail::PoolCore> pool = {};
  std::vector<Device> devices = {Device{}};  // assigned to workers in turn
  std::function<bool()> stop = {};           // whether to stop waiting for workers on other hosts
  std::function<bool()> interrupted = {};    // whether to stop waiting for any worker
};

// "worker 3"
inline std::string name_of_worker(uint32_t worker) { return "worker " + std::to_string(worker); }

// One thread at a time. Members are for WorkerIterations, which grants iterations to the present
// group.
struct WorkerMembership {
  // Seconds for a worker to build its problem, and to answer between iterations.
  static constexpr double kReadyLimit = 600, kAnswerLimit = 10;
  // Seconds that ready workers wait at the beginning for workers with other tasks.
  static constexpr double kBusyLimit = 2;

  struct Member {
    enum class Phase { building, ready, member };
    Phase phase = Phase::building;
    int64_t pid = 0;     // 0: it has not begun
    int slot = 0;        // its index in the pool; determines its cores and its load
    bool built = false;  // it waits for data that its host must have
    TimeLimit limit{kReadyLimit};
    ReservedPlace status_place;
    SharedRegion status_memory;
    bool halted = true;     // it computes nothing until a group is formed
    int64_t finished = -1;  // the iteration whose values it has; -1: none

    const TrainingWorkerStatus& status() const {
      return *reinterpret_cast<const TrainingWorkerStatus*>(status_memory.get());
    }
  };

  // Index of the member's host in the pool; 0 is this machine.
  int host_of(const Member& m) const { return workers.host_of(m.slot); }
  std::string name_of_host(const Member& m) const {
    return host_of(m) == 0 ? "" : pool.hosts()->status(host_of(m)).name;
  }
  // Partitions the batches of a validation among the group's hosts, and clears their areas.
  void partition_batches(Evaluator& evaluator);
  // Copies results from other hosts. Returns false if a host is lost.
  bool collect_batches(Evaluator& evaluator);
  void call_off_batches();
  // Copies the present status of workers on other hosts.
  void collect_statuses();
  // Number of batches that workers have begun in all validations.
  int64_t batches_begun() const;
  // The evaluation area of this machine's workers; at the end it holds the results of all workers.
  SharedRegion evaluation;

  // Starts the workers that the options describe.
  explicit WorkerMembership(const WorkerIterationsSetup& setup);
  ~WorkerMembership();
  WorkerMembership(const WorkerMembership&) = delete;
  WorkerMembership& operator=(const WorkerMembership&) = delete;

  // Handles one event, if one arrives within `seconds`. Rethrows exceptions of workers.
  bool step(double seconds);
  // Forms a group of all present workers, from the last iteration that any of them finished.
  void regroup();
  // A member writes its state to shared memory. Returns false if the member is lost instead.
  bool publish(uint32_t source);
  // Whether a worker waits to join.
  bool joiners() const;
  // Ends the members that the others wait for.
  void end_hanging();
  // Seconds without progress after which a worker counts as hanging.
  double limit() const;
  // Sends an order. Returns false if the worker cannot be reached.
  template <class Order>
  bool order(uint32_t worker, const Order& what) {
    return workers.send(worker, encode(WorkerOrder(what)));
  }

  const WorkerIterationsSetup setup;
  // Reserves memory that is shared with the workers. It is freed at the end.
  SharedPlace reserve(size_t bytes);

  PoolWorkers workers;
  detail::PoolCore& pool = workers.pool();
  SharedMemory& memory = pool.memory();
  std::vector<ReservedPlace> reserved;
  std::map<uint32_t, Member> members;
  std::vector<WorkerSummary> lost_workers;

  // Derived from the problem, the same for all workers.
  TrainingTask task;
  Digest names;
  BeginOrder begin;
  SharedRegion states[2];
  std::optional<ReadyReport> ready;  // of the first worker

  // Another host that has workers; see membership_hosts.cpp.
  struct Host {
    uint64_t presence = 0;  // of the process there, which has been prepared
    uint64_t images = 0;    // number of the last push of images to it
    ReservedPlace evaluation;
    SharedRegion evaluation_memory;
    bool missing = false;  // it has not come back, and this was reported
  };
  std::map<int, Host> hosts;  // by number
  bool may_prepare = false;   // images have been read and all orders are known
  // For each host, the batches of a validation that its area holds: first, and one after the last.
  std::map<int, std::pair<int64_t, int64_t>> partitioned_batches;

  // The present group.
  int64_t generation = 0;
  std::vector<uint32_t> ranks;
  std::optional<ClientGroup> group;
  int64_t formed = -1;  // the iteration before the group's first
  bool broken = false;

  // Iterations.
  int64_t granted = 0, received = 0, taken = 0;  // the last iteration of each
  int64_t furthest = 0;  // the last that a lost worker began or that was received
  std::map<int64_t, IterationOutcome> records;  // received in order and not yet taken
  std::map<int64_t, IterationOutcome> arrived;  // received before their predecessors
  std::map<int64_t, Digest> digests;            // of all iterations since the published state
  int published = 0;                            // which of the two states is valid
  int64_t published_iteration = 0;
  uint32_t publisher = 0;  // the worker that was asked for its state
  std::optional<int64_t> publishing;
  std::optional<std::set<uint32_t>>
      validating;  // workers that have not reported that they are done
  TimeLimit::Clock::time_point progress = TimeLimit::Clock::now();
  double iteration_seconds = 0;

  // Losses.
  struct Loss {
    WorkerChange change;
    TimeLimit::Clock::time_point noticed;
  };
  std::vector<Loss> losses;          // since the group broke
  std::vector<int> free_slots;       // of lost workers
  std::vector<int> absent_slots;     // slots that the pool has no worker for at present
  std::optional<TimeLimit> restart;  // when the next worker may be started
  // Ends without an iteration in between: by the workers' own fault or hanging, and from outside.
  int64_t losses_in_a_row = 0, kills_in_a_row = 0;
  int failed_rendezvous = 0;  // how often hosts could not form a group
  bool strangers_reported = false, busy_reported = false;
  std::set<std::string> noticed;      // notices of workers; each is reported once
  std::optional<TimeLimit> patience;  // the wait for workers with other tasks
  ShardDeaths deaths;
  std::vector<ShardOfIteration> alone;  // shards that the present group computes alone
  std::map<ShardOfIteration, int> disagreements;
  int64_t disagreed = 0;  // the last generation with a disagreement

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
  void take(uint32_t worker, const RendezvousReport& r);
  void take(uint32_t worker, const BrokenReport& r);
  void take(uint32_t worker, const NoticeReport& r);
  void start_replacements();
  void end_group();
  // Whether the group's members must first find each other, or each other's devices.
  bool far() const { return group->first_ranks().size() > 1 || !setup.devices.front().is_cpu(); }
  void note_failed_rendezvous(const std::string& why);
  bool prepared(const Member& m);
  void settle();
  BeginOrder begin_of(const Member& m);
  bool bring_state(int64_t base, bool from_state);
  SharedPlace used_status(const Member& m) const;
  bool await_rest();
  bool form(int64_t base, bool from_state);
};

}  // namespace lockstep
