// Partition of the tree's leaves among workers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {

// Partitions leaves among workers in order, one index range each. `loads`: the relative load of
// each worker, >= 0; a worker with load 0 gets no leaves. The time of the slowest worker (count /
// load) is minimal, except that every worker with a load gets at least one leaf if there are
// enough. Among these partitions it chooses one with the fewest partial sums; with more workers and
// leaves than can be searched, among those near a partition by proportion. The result depends
// only on the arguments. Thread-safe. Throws InvalidArgument for a load that is negative or not
// finite, and if all are 0.
std::vector<IndexRange> partition_shards(int64_t leaves, std::span<const double> loads);

// Divides update ranges among workers, each to one, so that the work of a worker is in proportion
// to its share. `sizes`: the work of each range. `shares`: >= 0, one of them above 0; a worker
// without a share gets no ranges. Returns the worker of each range. Workers of equal shares
// alternate. Throws InvalidArgument if no share is above 0. Thread-safe.
std::vector<int> divide_update_ranges(std::span<const int64_t> sizes,
                                      std::span<const int64_t> shares);
// The number of partial sums of a range: complete_subtrees(leaves, range).size().
int64_t partial_sums(int64_t leaves, const IndexRange& range);

// The schedules of sums for the same loads by number of leaves, each made once. Thread-safe.
class SumSchedules {
 public:
  explicit SumSchedules(std::vector<double> loads) : loads_(std::move(loads)) {}
  // Throws what partition_shards() throws.
  std::shared_ptr<const SumSchedule> of(int64_t leaves) LOCKSTEP_EXCLUDES(mutex_);

 private:
  const std::vector<double> loads_;
  Mutex mutex_;
  std::map<int64_t, std::shared_ptr<const SumSchedule>> schedules_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
