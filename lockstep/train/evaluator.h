// The one path by which networks are evaluated: validation while training, evaluate(), predict().
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/data/image_cache.h"
#include "lockstep/engine/nn/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// What is told besides loss and accuracy, where there is something to compare with.
struct Measures {
  std::vector<MetricPtr> metrics = {};  // that fit, see metrics_for()
  bool confusion = false;               // where labels are compared
};

// Observations in batches of a fixed size, the last one padded, so that a score never depends on
// its neighbours, on threads, or on how many observations there are. Every observation counts once.
class Evaluator {
 public:
  static constexpr int64_t kBatch = 64;

  // What is evaluated: images as they are cached, with noise, against labels or other images.
  struct Data {
    std::shared_ptr<const ImageCache> images;
    std::shared_ptr<const ImageCache> targets =
        {};  // null: labels, where the network's loss takes them
    InputNoise noise = {};
    uint64_t seed = 0;  // of the noise
  };

  // Keep the network and the pool alive.
  Evaluator(Network& network, Data data, ThreadPool& pool, Measures measures = {});
  ~Evaluator();

  // With the network's present values. `outputs`, if given, becomes n x the network's output,
  // row-major. Loss and accuracy are NaN where there is nothing to compare with.
  Evaluation run(Tensor* outputs = nullptr);

  // Several processes evaluate together, each with an Evaluator of the same data: in an area that
  // all see they take batches from each other, of those that were dealt to it. `scores`: where
  // metrics want them.
  size_t area_bytes(bool scores) const;
  // How much of its beginning says which batches are to be taken.
  static constexpr size_t kAreaHead = 64;
  int64_t batches() const;
  // Only these batches, from `first` to before `end`, are taken in that area.
  static void deal(std::byte* area, int64_t first, int64_t end);
  // Takes part, with the network's present values; for processes other than the one that asks.
  // `begun`, if given, counts the batches that it begins.
  void take_part(std::byte* area, bool scores, std::atomic<int64_t>* begun = nullptr);
  // Nobody begins another; thread-safe.
  static void call_off(std::byte* area);
  // What was evaluated in another area, of those batches.
  void merge(std::byte* area, const std::byte* other, int64_t first, int64_t end,
             bool scores) const;
  // When all have: what run() would have returned.
  Evaluation result(const std::byte* area);
  // Whether somebody has to say scores.
  bool wants_scores() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
