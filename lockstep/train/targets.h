// What a network takes and learns to give: images or arrays; labels, images or arrays.
#pragma once

#include <cstdint>

#include "lockstep/data/image_cache.h"
#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/engine/nn/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Pixels 0 to 255 as targets: 0 to 1.
void pixels_to_targets(const uint8_t* pixels, size_t count, float* targets);

// Elements [first, first + count) of a mini-batch's targets, of either kind, as floats.
void copy_targets(const MiniBatch& batch, size_t first, size_t count, float* to);
// Those of one observation of a cache; `scratch` is for get().
void copy_target(const ImageCache& targets, int64_t index, std::vector<uint8_t>& scratch,
                 float* to);

// Throws InvalidArgument unless the network has one input that takes observations of that kind: an
// image's three dimensions, or the arrays' shape.
void check_inputs(const Network& network, const ImageDatastore& data);

// Throws Unsupported where the observations are arrays and images are to be changed.
void check_changes(const TrainingData& data);

// Throws InvalidArgument unless the network can learn `targets` (or, without, labels of `classes`):
// one output of a fitting size, and a loss that takes them.
void check_fits(const Network& network, const std::vector<std::string>& classes,
                const DatastorePtr& targets);

// What metrics measure where these data are evaluated.
MetricProblem metric_problem(const Network& network, const ImageDatastore& data,
                             const DatastorePtr& targets);

// A cache of images of the size that the network's input layer wants (its output, for targets), or
// of arrays. `images`: which images, where they are such. Throws as check_inputs().
std::shared_ptr<const ImageCache> cache_for(const Network& network, const DatastorePtr& data,
                                            size_t budget_bytes,
                                            CachedImages images = CachedImages::exact);
// The same for targets, exact or windowed as the inputs are; the inputs' cache itself where the
// targets are the same images in the same size.
std::shared_ptr<const ImageCache> target_cache_for(const Network& network,
                                                   const DatastorePtr& targets,
                                                   const std::shared_ptr<const ImageCache>& inputs,
                                                   size_t budget_bytes);

}  // namespace lockstep
