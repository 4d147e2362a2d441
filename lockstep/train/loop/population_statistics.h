// Statistics of batch normalization over a whole data set, which replace moving statistics.
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct PopulationOptions {
  int64_t shard_size = 16;
  InputNoise noise = {};  // drawn once, as in validation
  uint64_t seed = 0;      // of the noise
  // Called before every pass over the images.
  std::function<void(int64_t pass, int64_t passes)> on_pass = {};
  // Called before every shard of the calling thread, only in that thread. True ends the
  // computation.
  std::function<bool()> stop = {};
};

struct PopulationResult {
  int64_t layers = 0;  // of batch normalization; a shared layer counts once
  int64_t passes = 0;
  bool complete = true;
};

// Sets mean and variance of every batch normalization layer to those of its inputs over all
// observations, in listing order and without augmentation (larger images are cut at the center).
// The rest of the network works as in prediction. Layers are processed in order, so that earlier
// layers already use their population statistics. Layers that do not depend on each other share a
// pass. Variances are divided by the count. For a layer at several positions in the graph, the
// inputs at all positions are combined.
//
// The images are partitioned into shards of at most `shard_size`. The moments of shards are merged
// in double by the fixed tree, so the bits do not depend on threads. If stop() ends the
// computation, the statistics are unchanged. Throws like check_population_statistics(), without
// changing anything.
PopulationResult set_population_statistics(Network& network, const ExampleCache& images,
                                           ThreadPool& pool, const PopulationOptions& options);

// Throws InvalidArgument for a shared layer whose inputs depend on its own statistics. `network`
// must be initialized.
void check_population_statistics(const Network& network);

}  // namespace lockstep
