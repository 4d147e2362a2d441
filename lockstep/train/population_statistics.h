// Statistics of batch normalisation over a whole data set, in place of moving ones.
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/base/thread_pool.h"
#include "lockstep/data/image_cache.h"
#include "lockstep/data/noise.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct PopulationOptions {
  int64_t shard_size = 16;
  InputNoise noise = {};  // drawn once, as for validation
  uint64_t seed = 0;      // of the noise
  // Called before every pass over the images.
  std::function<void(int64_t pass, int64_t passes)> on_pass = {};
  // Asked all the time, by the calling thread alone; true ends the computation.
  std::function<bool()> stop = {};
};

struct PopulationResult {
  int64_t layers = 0;  // of batch normalisation; shared ones count once
  int64_t passes = 0;
  bool complete = true;
};

// Sets mean and variance of every batch normalisation to those of all its inputs over all
// observations, in listing order and without augmentation (of larger images the centre), while the
// rest of the network works as in prediction. Layers come in order, so that a layer sees those
// before it normalise by their population statistics already: layers that do not depend on each
// other share a pass. Variances divide by the count. A layer shared by several places takes what
// all of them see together.
//
// The images are cut into shards of `shard_size`; moments of shards are merged in double by the
// fixed tree, so the bits depend on no thread. When stop() ends it the statistics are as before.
// Throws as check_population_statistics(), without having changed anything.
PopulationResult set_population_statistics(Network& network, const ImageCache& images,
                                           ThreadPool& pool, const PopulationOptions& options);

// Throws InvalidArgument for a shared layer whose inputs depend on its own statistics. `network` is
// initialized.
void check_population_statistics(const Network& network);

}  // namespace lockstep
