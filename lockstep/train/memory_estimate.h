// How much memory a training will take, told before anything is allocated for it.
#pragma once

#include <cstddef>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Bytes of one process that computes on the CPU.
struct MemoryEstimate {
  size_t values = 0;     // learnables and state, their copies in kernels' layouts, the solver's
                         // arrays, the best network where it is kept
  size_t gradients = 0;  // of each thread's shards, and their sums
  size_t shards = 0;     // what the passes over shards write, on all threads
  size_t images = 0;     // caches and mini-batches made ahead
  size_t saving = 0;     // a checkpoint while it is written
  size_t program = 0;    // the rest: code, kernels, listings
  size_t total() const { return values + gradients + shards + images + saving + program; }
};

// What one process of a training on the CPU takes at most: the whole training, or, with worker
// processes, one of those. `network` needs its sizes alone (Network::initialize_sizes()); the
// shards' plans are compiled, nothing is allocated for them. Within 25 % of the peak that was
// measured for the jobs in examples/jobs. Throws InvalidArgument as a training would for a network
// that does not fit.
MemoryEstimate estimate_memory(const Network& network, const TrainingData& data,
                               const TrainingOptions& options);

}  // namespace lockstep
