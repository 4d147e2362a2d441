// Evaluation of networks: used by validation during training, evaluate() and predict().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

// Measures besides loss and accuracy. They need labels or targets.
struct Measures {
  std::vector<MetricPtr> metrics = {};  // metrics that fit the data, see metrics_for()
  bool confusion = false;               // only with labels
};

// Evaluates observations in batches of a fixed size, the last one padded. A score therefore does
// not depend on other observations, their number, or threads. Every observation counts once. On the
// CPU batches have kBatch observations; on other devices the network sets a larger size.
class Evaluator {
 public:
  static constexpr int64_t kBatch = 64;

  // The evaluated data: cached images with noise, and labels or other images to compare with.
  struct Data {
    std::shared_ptr<const ExampleCache> images;
    std::shared_ptr<const ExampleCache> targets =
        {};  // null: those of the examples, or labels, if the network's loss uses them
    InputNoise noise = {};
    uint64_t seed = 0;       // of the noise
    TrainingLoss loss = {};  // in place of the network's
    // Where a device other than the CPU evaluates the network's own loss: the type of products, and
    // the choice of algorithms, else that of the thread.
    DType precision = DType::f32;
    std::optional<kernels::Choice> choice = {};
  };

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
