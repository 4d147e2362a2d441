// Evaluation of networks: used by validation during training, evaluate() and predict().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/evaluation/evaluated_batches.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/evaluation/evaluation_results.h"

namespace lockstep {

// Evaluates observations in batches of a fixed size, the last one padded. A score therefore does
// not depend on other observations, their number, or threads. Every observation counts once. On the
// CPU batches have kBatch observations; on other devices the network sets a larger size.
class Evaluator {
 public:
  static constexpr int64_t kBatch = EvaluatedBatches::kChunk;

  using Data = EvaluatedData;

  // The network and the pool must outlive the Evaluator. Takes no memory of a device and compiles
  // nothing until the first batch is evaluated, or prepare() is called.
  Evaluator(Network& network, Data data, ThreadPool& pool, Measures measures = {});
  ~Evaluator();
  void prepare();

  // Evaluates the network with its current values. `outputs`, if not null, receives the outputs (n
  // x output of the network, row-major). Loss and accuracy are NaN if there is nothing to compare
  // with.
  Evaluation run(Tensor* outputs = nullptr);

  // Several processes can evaluate together, each with an Evaluator of the same data. They use an
  // area of shared memory and take batches from it one at a time. The size of the area includes
  // scores if `scores` is true, see wants_scores().
  size_t area_bytes(bool scores) const;
  // Bytes at the beginning of the area, which hold the batches that remain.
  static constexpr size_t kAreaHead = 64;
  int64_t batches() const;
  // Sets the batches of the area: from `first` to before `end`.
  static void partition(std::byte* area, int64_t first, int64_t end);
  // Evaluates batches of the area with the network's current values until none is left. For
  // processes other than the one that calls result(). `begun`, if not null, counts the batches that
  // this call begins.
  void take_part(std::byte* area, bool scores, std::atomic<int64_t>* begun = nullptr);
  // Makes all processes begin no further batch. Thread-safe.
  static void call_off(std::byte* area);
  // Copies the results of batches [first, end) from another area.
  void merge(std::byte* area, const std::byte* other, int64_t first, int64_t end,
             bool scores) const;
  // Returns the result of run() after all batches are evaluated.
  Evaluation result(const std::byte* area);
  // Whether the metrics need the scores in the area.
  bool wants_scores() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
