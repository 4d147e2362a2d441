// The mini-batches of a training.
#pragma once

#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Options of the queue that hands them out, without targets. Thread-safe.
MiniBatchQueueOptions mini_batches_of(const TrainingData& data, const TrainingOptions& options);

}  // namespace lockstep
