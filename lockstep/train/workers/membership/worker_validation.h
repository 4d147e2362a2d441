// Validations by workers: the batches are divided among the hosts of the present group, whose
// members take them one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/state/finite_values.h"
#include "lockstep/train/workers/membership/membership.h"
#include "lockstep/train/workers/membership/training_hosts.h"

namespace lockstep {

// One thread at a time.
class WorkerValidation {
 public:
  WorkerValidation(WorkerMembership& membership, TrainingHosts& hosts)
      : membership_(membership), hosts_(hosts) {}

  // Reserves the area for results; `evaluator` may be null.
  void prepare(std::unique_ptr<Evaluator> evaluator);
  const SharedRange& range() const { return range_; }
  bool scores() const { return evaluator_ && evaluator_->wants_scores(); }

  // Begins a validation by these workers, and partitions the batches among their hosts.
  void begin(const std::vector<uint32_t>& workers);
  // The worker has no batch under way. `found`: in its values, which are those of all workers.
  void done(uint32_t worker, std::optional<NotFinite> found) {
    if (awaited_) awaited_->erase(worker);
    if (found) not_finite_ = std::move(found);
  }
  // Found by the last validation.
  const std::optional<NotFinite>& not_finite() const { return not_finite_; }
  // The workers that are not done; none if no validation is under way.
  const std::optional<std::set<uint32_t>>& awaited() const { return awaited_; }
  // Number of batches that workers have begun in all validations.
  int64_t batches_begun() const;
  // No worker is waited for any more.
  void stop_waiting() { awaited_.reset(); }
  // After stop_waiting(): the result; none if a host is lost.
  std::optional<Evaluation> collect();
  // The workers take no further batch.
  void call_off();

 private:
  WorkerMembership& membership_;
  TrainingHosts& hosts_;
  std::unique_ptr<Evaluator> evaluator_;
  // The area of this machine's workers; at the end it holds the results of all workers.
  ReservedRange reserved_;
  SharedRange range_;
  SharedRegion area_;
  std::map<int, IndexRange> parts_;  // the batches of each host
  std::optional<std::set<uint32_t>> awaited_;
  std::optional<NotFinite> not_finite_;
};

}  // namespace lockstep
