// A run of a trial of a job file's sweep, on a worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sweeps/driver.h"

namespace lockstep {

// The same for all trials of a sweep.
struct JobTrials {
  std::string file, tree;  // JobText
  std::string folder;      // of the sweep
  std::string metric;      // "accuracy", "loss" or a metric of the job
  uint64_t lent = 0;       // number of LentWorkers in this process; 0: threads compute

  JobText text() const { return {file, tree}; }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(file, tree, folder, metric, lent);
  }
};

// Workers of a pool that compute the trials' trainings, if trials run in threads of this process.
struct LentWorkers {
  std::shared_ptr<detail::PoolCore> pool = {};
  int64_t threads = 0;                                           // of each worker
  std::function<std::vector<int>(const TrialRun& run)> of = {};  // indexes; thread-safe
};

// Offers workers to trials of this process while it exists.
class LendingOffer {
 public:
  explicit LendingOffer(LentWorkers workers);
  ~LendingOffer();
  LendingOffer(const LendingOffer&) = delete;
  LendingOffer& operator=(const LendingOffer&) = delete;
  uint64_t number() const { return number_; }

 private:
  uint64_t number_;
};

// The job of a trial. Throws what job_of() throws.
Job trial_job(const JobTrials& all, const TrialParameters& parameters, int64_t repeat);

// Trains a trial up to its budget of epochs, from its last checkpoint on. Throws errors of the
// machine; those of the trial are in the report. Throws InvalidArgument if there is no validation
// until then.
TrialReport run_job_trial(const JobTrials& all, const TrialTask& task,
                          const QueueSender<TrialProgress>& progress,
                          const QueueReceiver<int64_t>& receiver);

}  // namespace lockstep
