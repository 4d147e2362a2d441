// The orders of the observations in the epochs that a queue works at.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/batches/mini_batch_queue.h"

namespace lockstep {

// The orders of the epochs in use. Several threads may work at the end of one epoch and the start
// of the next. Thread-safe.
class EpochOrders {
 public:
  EpochOrders(int64_t n, Shuffle shuffle, uint64_t seed) : n_(n), shuffle_(shuffle), seed_(seed) {}

  std::shared_ptr<const std::vector<int64_t>> get(int64_t epoch) {
    if (shuffle_ != Shuffle::every_epoch) epoch = 0;
    const MutexLock lock(mutex_);
    Entry& entry = entries_[static_cast<size_t>(epoch) % entries_.size()];
    if (entry.epoch != epoch) {
      entry.order =
          std::make_shared<const std::vector<int64_t>>(epoch_order(n_, shuffle_, seed_, epoch));
      entry.epoch = epoch;
    }
    return entry.order;
  }

 private:
  struct Entry {
    int64_t epoch = -1;
    std::shared_ptr<const std::vector<int64_t>> order;
  };

  int64_t n_;
  Shuffle shuffle_;
  uint64_t seed_;
  Mutex mutex_;
  std::array<Entry, 2> entries_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
