// What the client of a training by workers knows, one class for each subject.
#pragma once

#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/workers/membership/iteration_records.h"
#include "lockstep/train/workers/membership/membership.h"
#include "lockstep/train/workers/membership/present_group.h"
#include "lockstep/train/workers/membership/published_state.h"
#include "lockstep/train/workers/membership/training_hosts.h"
#include "lockstep/train/workers/membership/worker_losses.h"
#include "lockstep/train/workers/membership/worker_validation.h"

namespace lockstep {

// One thread at a time.
struct WorkerParts {
  WorkerParts(const IterationsSetup& iterations, const Call<TrainingProblem>& problem,
              const TrainingWorkers& workers)
      : setup(iterations), membership(setup, problem, workers) {}
  // Ends members that wait for others immediately, and all workers before their memory is freed.
  ~WorkerParts() {
    group.end();
    membership.end();
  }
  WorkerParts(const WorkerParts&) = delete;
  WorkerParts& operator=(const WorkerParts&) = delete;

  const IterationsSetup setup;
  WorkerLosses losses{setup};
  WorkerMembership membership;
  TrainingHosts hosts{setup, membership};
  IterationRecords records;
  PublishedState state{membership.pool().memory()};
  WorkerValidation validation{membership, hosts};
  PresentGroup group;
};

}  // namespace lockstep
