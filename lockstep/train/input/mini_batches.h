// The mini-batches of a training.
#pragma once

#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

struct TrainingOptions;

// The options of the MiniBatchQueue of a training, without targets. Thread-safe.
MiniBatchQueueOptions mini_batches_of(const TrainingData& data, const TrainingOptions& options);

}  // namespace lockstep
