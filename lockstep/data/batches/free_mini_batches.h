// Buffers of mini-batches that a queue uses again.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/batches/mini_batch_queue.h"

namespace lockstep {

// Mini-batches whose buffers can be reused. Shared with the mini-batches that next() returned,
// which may outlive the queue. Thread-safe.
class FreeMiniBatches {
 public:
  explicit FreeMiniBatches(size_t limit) : limit_(limit) { free_.reserve(limit); }

  std::unique_ptr<MiniBatch> take() {
    {
      const MutexLock lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<MiniBatch> batch = std::move(free_.back());
        free_.pop_back();
        return batch;
      }
    }
    return std::make_unique<MiniBatch>();
  }

  void put(std::unique_ptr<MiniBatch> batch) {
    batch->tensors.clear();
    const MutexLock lock(mutex_);
    if (free_.size() < limit_) free_.push_back(std::move(batch));
  }

 private:
  Mutex mutex_;
  const size_t limit_;
  std::vector<std::unique_ptr<MiniBatch>> free_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
