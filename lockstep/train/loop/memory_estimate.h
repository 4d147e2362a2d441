// Estimates the memory of a training before anything is allocated.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

struct TrainingOptions;

// Bytes of one process that computes on the CPU.
struct MemoryEstimate {
  // Parameters and states, their packed copies, the solver's arrays, and the best network if it is
  // kept.
  size_t values = 0;
  size_t gradients = 0;  // of each thread's shards, and their sums
  size_t shards = 0;     // results of the passes over shards, on all threads
  size_t images = 0;     // caches and prepared mini-batches
  size_t saving = 0;     // a checkpoint during writing
  size_t program = 0;    // code, kernels, lists of observations and all other memory
  // Evaluation of validation and test data when the training has ended: scores of observations, and
  // the confusion matrix with its file and page.
  size_t evaluation = 0;
  // Gradients, shards and checkpoints have no memory by then.
  size_t total() const {
    return values + images + program + std::max(gradients + shards + saving, evaluation);
  }
};

// The peak memory of one process of a training on the CPU: of the whole training, or with worker
// processes of one worker. `network` needs only its sizes (Network::initialize_sizes()). The plans
// for shards are compiled, but no memory is allocated for them. Within 25 % of the measured peak
// for the jobs in examples/jobs. `test`: is evaluated in the end; may be null. Throws
// InvalidArgument, as a training would, for a network that does not fit.
MemoryEstimate estimate_memory(const Network& network, const TrainingData& data,
                               const TrainingOptions& options, const DatastorePtr& test = {});

}  // namespace lockstep
