// What the client of a training concludes from losses of its workers: the pauses before
// replacements, the limits that end the training, and the shards that end their workers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/time_limit.h"
#include "lockstep/train/iteration/shard_deaths.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/workers/pool_workers.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// One thread at a time.
class WorkerLosses {
 public:
  struct Loss {
    WorkerChange change;
    TimeLimit::Clock::time_point noticed = TimeLimit::Clock::now();
  };

  explicit WorkerLosses(const IterationsSetup& setup) : setup_(setup) {}

  // Keeps a loss until report().
  void add(Loss loss) { losses_.push_back(std::move(loss)); }
  // Reports the kept losses to the user: the training continues with `members` workers.
  void report(int64_t members);

  // Counts a loss and plans the next start of workers. The limits are for each worker, because all
  // workers may end at once. A cause outside the program may end only some of them. Throws Error at
  // a limit.
  void count(const PoolWorkerEvent& event);
  // Whether replacements may be started now.
  bool may_replace() const { return !restart_ || restart_->reached(); }
  // The workers did not form a group although none was lost, so the cause is the connection between
  // hosts or devices. Throws Error at the limit.
  void count_failed_rendezvous(const std::string& why);
  // An iteration was begun. Ends the counts above, unless it is computed again, which is not
  // progress.
  void advance_to(int64_t iteration);

  // A worker ended by its own fault while it computed shards, perhaps because of one of them.
  // Throws Error if a shard is convicted by this.
  void blame(const TrainingWorkerStatus& status, const std::string& how);
  // The iteration is finished, so none of its shards is to blame.
  void finished(int64_t iteration) { deaths_.finished(iteration); }
  // The shards that a new group must compute alone.
  const std::vector<ShardOfIteration>& choose_alone() { return alone_ = deaths_.suspects(); }
  // Counts a difference between results for one shard. Throws Error with the report's message if
  // the faulty members are unknown, and at the limit.
  void count_disagreement(const DisagreementReport& r);

 private:
  std::string observations_of(int64_t iteration, int64_t shard) const;

  const IterationsSetup& setup_;
  std::vector<Loss> losses_;          // since the group broke
  std::optional<TimeLimit> restart_;  // when the next worker may be started
  // Ends without an iteration in between: by the workers' own fault or hanging, and from outside.
  int64_t losses_in_a_row_ = 0, kills_in_a_row_ = 0;
  int failed_rendezvous_ = 0;  // how often hosts could not form a group
  int64_t furthest_ = 0;       // the last iteration that a lost worker began or that was received
  ShardDeaths deaths_;
  std::vector<ShardOfIteration> alone_;  // shards that the present group computes alone
  std::map<ShardOfIteration, int> disagreements_;
};

}  // namespace lockstep
