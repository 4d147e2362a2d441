// The mini-batches of epochs: the order of the observations, and the segments of their sequences.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/batches/mini_batch_queue.h"

namespace lockstep {

// The order of one epoch.
struct EpochOrder {
  // Mini-batches are consecutive parts. A permutation, unless classes are balanced; then
  // repetitions are as in MiniBatch.
  std::vector<int64_t> observations;
  std::vector<int64_t> repetitions = {};
  // Of sequences that are cut: the segments before each mini-batch, then all. Empty: nothing is
  // cut.
  std::vector<int64_t> segments_before = {};
};

// A mini-batch within its epoch.
struct EpochBatch {
  int64_t first = 0, count = 0;       // its observations in EpochOrder::observations
  int64_t segment = 0, segments = 0;  // as in MiniBatch
};

// The number of steps of each observation: of the longest of its inputs. Empty if no input is a
// sequence. Reads examples whose numbers of steps are not known. Throws DataError.
std::vector<int64_t> steps_of_observations(const ExampleCache& cache);
std::vector<int64_t> steps_of_observations(const Datastore& data);
// The class of each observation, for balanced ones.
std::vector<int64_t> labels_of_observations(const Datastore& data);
// The number of steps of one observation; 0 without sequences.
int64_t steps_of_longest(const ExampleCache& cache, int64_t observation);

// The orders of the epochs in use. Several threads may work at the end of one epoch and the start
// of the next. Thread-safe.
//
// Each epoch has the same number of mini-batches, also where sequences are cut: which number of
// segments an observation at some position has is drawn once, and each epoch deals the observations
// with that number to these positions again.
class EpochOrders {
 public:
  // `steps`: of each observation, if sequences are cut or grouped by length; `labels`: its class,
  // if classes are balanced. Throws InvalidArgument for options that cannot work with n
  // observations of any kind, and if there are no steps.
  EpochOrders(int64_t n, const MiniBatchQueueOptions& options, std::vector<int64_t> steps,
              const std::vector<int64_t>& labels = {});

  std::shared_ptr<const EpochOrder> get(int64_t epoch);
  int64_t per_epoch() const { return per_epoch_; }
  // Mini-batch number `index` of an epoch.
  EpochBatch batch(const EpochOrder& order, int64_t index) const;

 private:
  struct Entry {
    int64_t epoch = -1;
    std::shared_ptr<const EpochOrder> order;
  };

  EpochOrder made(int64_t epoch) const;
  int64_t segments(int64_t observation) const;
  std::vector<int64_t> dealt(std::vector<int64_t> order, const std::vector<int64_t>& pattern) const;
  void group(std::vector<int64_t>& order) const;
  void mix(std::vector<int64_t>& order, int64_t epoch) const;
  void count_segments(EpochOrder& order) const;
  std::vector<int64_t> balanced_order(int64_t epoch) const;

  const int64_t n_, batches_, batch_size_;  // batches_: without segments
  const int64_t sequence_length_, group_by_length_;
  const Shuffle shuffle_;
  const uint64_t seed_;
  const std::vector<int64_t> steps_;
  std::vector<std::vector<int64_t>> classes_;  // the observations of each, if they are balanced
  int64_t per_epoch_ = 0;
  Mutex mutex_;
  std::array<Entry, 2> entries_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
