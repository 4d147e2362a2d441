// What observers receive at the start of a training. Apart from observer.h, so that those who do
// not use it are not compiled again for each new option.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/dtype.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

// Facts that are known before the first iteration.
struct TrainingStart {
  TrainingOptions options;          // resolved
  int64_t observations = 0;         // in the training data
  std::string examples = "images";  // what they are: "images", "sequences", "rows", ...
  int64_t validation_observations = 0;
  int64_t iterations_per_epoch = 0;
  int64_t iterations = 0;       // total number
  int64_t first_iteration = 1;  // > 1 if resumed
  int64_t last_validation = 0;  // the newest validation that counts; > 0 if resumed
  bool classifies = true;       // the network learns labels, so that accuracy is defined
  int64_t shards = 0;           // of a full mini-batch; more threads than that are idle
  Device device;                // the device that computes
  int threads = 1;              // for each worker, if there are workers
  int workers = 0;              // worker processes; 0: this process computes
  Digest data;                  // of the training listing, including contents
  Digest chain;                 // of the receipt up to this point
  Digest first_chain;           // of the receipt before the first iteration
  std::string advice;           // advice for higher speed on this machine, or ""
  std::string shard_advice;     // which shard_size would use more threads, or ""

  // The number of epochs with iterations, the last one possibly incomplete.
  int64_t epochs() const {
    return iterations_per_epoch > 0 ? (iterations + iterations_per_epoch - 1) / iterations_per_epoch
                                    : options.max_epochs;
  }
};

}  // namespace lockstep
