// Computes the batches of an evaluation, by threads on the CPU or on another device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/train/evaluation/evaluated_batches.h"

namespace lockstep {

// What the network made of the observations of a batch: scores and targets of its outputs one after
// another (EvaluatedBatches::outputs_of()), losses by observation.
struct ComputedBatch {
  IndexRange observations;
  int thread = 0;                  // of the pool, which has computed it or waited for it
  const float* scores = nullptr;   // outputs
  const float* losses = nullptr;   // null unless plans compute the loss
  const float* targets = nullptr;  // null unless wanted, and outputs are compared with images
};

// One thread at a time.
class BatchEvaluator {
 public:
  // The number of the next batch; nothing: there is none. Thread-safe.
  using Next = std::function<std::optional<int64_t>()>;
  // Takes a batch, which is valid during the call. Thread-safe.
  using Take = std::function<void(const ComputedBatch& batch)>;

  virtual ~BatchEvaluator() = default;
  // Before an evaluation, or a part of one.
  virtual void begin() {}
  // Computes the batches that `next` returns until there is none, with the present values of the
  // network, whose packed copies must be up to date. After an exception, which is rethrown, no
  // further batch is begun.
  virtual void compute(const Next& next, const Take& take) = 0;
  // Number of batches that are computed at a time.
  virtual int64_t together() const = 0;
};

// Each thread computes a batch of its own. The batches and the pool must outlive the result.
// `targets`: whether they are wanted with the batches.
std::unique_ptr<BatchEvaluator> evaluator_by_threads(EvaluatedBatches& batches, ThreadPool& pool,
                                                     bool targets);
// All threads prepare a batch while the device of the network computes the ones before.
std::unique_ptr<BatchEvaluator> evaluator_by_device(EvaluatedBatches& batches, ThreadPool& pool,
                                                    bool targets);

}  // namespace lockstep
