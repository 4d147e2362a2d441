// The records of iterations that workers report: which iterations are granted, received and taken.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/train/records/iteration_outcome.h"

namespace lockstep {

// One thread at a time.
class IterationRecords {
 public:
  // All iterations before `first` are finished.
  void begin(int64_t first) { granted_ = received_ = taken_ = first - 1; }

  // The last iteration that the workers may compute, whose record has been received, and whose
  // record was taken.
  int64_t granted() const { return granted_; }
  int64_t received() const { return received_; }
  int64_t taken() const { return taken_; }

  void grant(int64_t last) { granted_ = last; }
  // A new group continues after iteration `base`.
  void continue_after(int64_t base);
  // Takes a worker's report. Returns the iterations that are received by this; their records come
  // in order. Throws Error if a digest differs from another worker's.
  IndexRange add(uint32_t worker, const std::vector<IterationOutcome>& records);
  // The record of an iteration, which must have been received, for the caller to take.
  IterationOutcome take(int64_t iteration);
  bool has(int64_t iteration) const { return records_.count(iteration) > 0; }
  // Digests from this iteration on are kept, for comparison with workers that report later.
  void forget_before(int64_t iteration);
  // Duration of the iteration received last; 0: none.
  double seconds() const { return seconds_; }

 private:
  int64_t granted_ = 0, received_ = 0, taken_ = 0;
  std::map<int64_t, IterationOutcome> records_;  // received in order and not yet taken
  std::map<int64_t, IterationOutcome> arrived_;  // received before their predecessors
  std::map<int64_t, Digest> digests_;            // of all iterations since the published state
  double seconds_ = 0;
};

}  // namespace lockstep
