// Results of frozen layers that evaluations during a training keep (engine/plan/kept_part.h). A
// batch has the same observations in the same rows each time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/plan/kept_part.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/programs/frozen/kept_results.h"

namespace lockstep {

// What evaluations may keep: on the CPU, for the network's own loss and not for sequences.
struct EvaluationKeeping {
  // By parameter: whether no update changes it until the function returns something else. Null:
  // nothing is kept.
  std::function<std::vector<bool>()> frozen = {};
  // What the training leaves of it is used.
  std::shared_ptr<KeptMemory> memory = std::make_shared<KeptMemory>(0);
  std::string cause = {};  // told if nothing is left: "cache_mib = 0"
  std::function<void(const std::string&)> notice = {};
};

// By state: whether training does not change it.
std::vector<bool> constant_states(const Network& network);

// Threads may load and save different batches at the same time.
class KeptBatches {
 public:
  // The network must outlive it. `observations` in batches of `rows` rows, the last one padded.
  KeptBatches(const Network& network, EvaluationKeeping keeping, int64_t observations,
              int64_t rows);
  ~KeptBatches() { clear(); }
  KeptBatches(const KeptBatches&) = delete;
  KeptBatches& operator=(const KeptBatches&) = delete;

  // Before an evaluation. Forgets all results if values that they depend on have changed. Returns
  // whether other layers are frozen than before: then the plan of a batch is compiled with
  // unchanging() and given to divide().
  bool begin();
  Unchanging unchanging() const;
  void divide(const Plan& plan);

  // Whether the evaluation keeps results; else plans run as a whole.
  bool keeps() const { return keeps_; }
  // Whether what follows the frozen layers reads inputs, too.
  bool rest_reads_inputs() const { return rest_reads_inputs_; }
  // Whether the results of a batch are known, and what copies them to a run of the plan.
  bool knows(const IndexRange& observations) const { return at(observations).known; }
  void load(const IndexRange& observations, const PlanRun& run) const;
  // Takes memory for a batch whose results are not known; false: there is none.
  bool make_room(const IndexRange& observations);
  // Takes the results of run.forward_first().
  void save(const IndexRange& observations, const PlanRun& run);

 private:
  struct Batch {
    // Of each array the observations' rows, then one for all that are padding, if there are any.
    std::unique_ptr<std::byte[]> results = {};
    bool known = false, refused = false;
  };

  const Batch& at(const IndexRange& observations) const {
    return batches_[static_cast<size_t>(observations.first / rows_)];
  }
  Batch& at(const IndexRange& observations) {
    return batches_[static_cast<size_t>(observations.first / rows_)];
  }
  int64_t kept_rows(const IndexRange& observations) const {
    return std::min(observations.count + 1, rows_);
  }
  Digest digest_of_values() const;
  void clear();
  void tell(const KeptPart& part) const;

  const Network& network_;
  const EvaluationKeeping keeping_;
  const int64_t observations_, rows_;
  const std::vector<bool> constant_;  // by state
  std::vector<bool> frozen_;          // by parameter
  std::optional<Digest> digest_;
  bool keeps_ = false, rest_reads_inputs_ = false;
  std::vector<KeptPart::Array> arrays_;
  size_t row_bytes_ = 0;  // of all arrays
  std::vector<Batch> batches_;
  size_t most_bytes_ = 0;
  std::atomic<size_t> bytes_{0};
};

}  // namespace lockstep
