// Results of frozen layers, which are computed once for each observation and kept during a
// training, because nothing changes them (DataOptions::keep_features). The bits of the training are
// those without them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/numeric/shape.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/input/training_images.h"

namespace lockstep {

struct TrainingOptions;

// The layers that need not run in each iteration: the largest part of the network, closed towards
// its inputs, whose parameters are frozen, that draws no random numbers and whose statistics do not
// follow the mini-batches.
struct KeptLayers {
  std::vector<std::string> given = {};  // whose results other layers read; empty: nothing is kept
  std::vector<Shape> shapes = {};       // of these results of an observation
  int64_t layers = 0;                   // with parameters, that need not run
  int64_t rows = 0;                     // of each shard of the training
  std::string notice = {};              // for the user, if something prevents keeping; or ""

  // Bytes of the results of one observation.
  int64_t bytes() const;
};

// Which results a training keeps on the network's device. `options` are resolved. Throws
// InvalidArgument if keep_features = always and something prevents it, which the message names.
// Reads no images.
KeptLayers layers_to_keep(const Network& network, const TrainingData& data,
                          const TrainingOptions& options);

// Computes the results for all training and validation images, by the threads of the pool, and
// returns images whose inputs they are. The network's inputs must have their statistics. The
// calling thread calls `interrupted` from time to time. Throws Cancelled if that is true, and
// DataError for images that cannot be read.
TrainingImages with_features(Network& network, const TrainingImages& images, const KeptLayers& kept,
                             ThreadPool& pool, const std::function<bool()>& interrupted);

}  // namespace lockstep
