// The one path by which networks are evaluated: validation while training, evaluate(), predict().
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/thread_pool.h"
#include "lockstep/data/image_cache.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Observations in batches of a fixed size, the last one padded, so that a score never depends on
// its neighbours, on threads, or on how many observations there are. Every observation counts once.
class Evaluator {
 public:
  static constexpr int64_t kBatch = 64;

  // Keep the network and the pool alive.
  Evaluator(Network& network, std::shared_ptr<const ImageCache> images, ThreadPool& pool);
  ~Evaluator();

  // With the network's present values. `scores`, if given, becomes n x outputs, row-major.
  Evaluation run(Tensor* scores = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// An image cache of the size that the network's input layer wants.
std::shared_ptr<const ImageCache> cache_for(const Network& network, const DatastorePtr& data,
                                            size_t budget_bytes);

// Throws InvalidArgument unless the network classifies into `classes` classes and its loss can be
// computed from labels.
void check_classifier(const Network& network, const std::vector<std::string>& classes);

}  // namespace lockstep
