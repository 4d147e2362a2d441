// Inputs and targets of a network: inputs are images or arrays; targets are labels, images or
// arrays.
#pragma once

#include <cstdint>

#include "lockstep/data/batches/image_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

// The shape of n observations of one shape: n x observation.
Shape batch_shape(int64_t n, const Shape& observation);

// Converts pixels from 0 to 255 to targets from 0 to 1.
void pixels_to_targets(const uint8_t* pixels, size_t count, float* targets);

// Copies elements [first, first + count) of a mini-batch's targets as floats, from pixels or
// floats.
void copy_targets(const MiniBatch& batch, size_t first, size_t count, float* to);
// Copies the target of one observation from a cache. `scratch` is for ImageCache::get().
void copy_target(const ImageCache& targets, int64_t index, std::vector<uint8_t>& scratch,
                 float* to);

// Throws InvalidArgument unless the network has one input that fits the observations: three
// dimensions for images, or the shape of the arrays.
void check_inputs(const Network& network, const ImageDatastore& data);

// Throws Unsupported if augmentation, noise or random crops are set and the observations are
// arrays.
void check_changes(const TrainingData& data);

// Throws InvalidArgument unless the network can learn `targets`, or labels of `classes` if
// `targets` is null: it needs one output of the right size and a suitable loss.
void check_fits(const Network& network, const std::vector<std::string>& classes,
                const DatastorePtr& targets);

// The description of the data that metrics need.
MetricProblem metric_problem(const Network& network, const ImageDatastore& data,
                             const DatastorePtr& targets);

// A cache of images in the size of the network's input, or of arrays. `images` is the kind of
// cached images. Throws like check_inputs().
std::shared_ptr<const ImageCache> cache_for(const Network& network, const DatastorePtr& data,
                                            size_t budget_bytes,
                                            CachedImages images = CachedImages::exact);
// The same for targets, in the size of the network's output; exact or windowed like the inputs.
// Null if `targets` is null. Returns the cache of the inputs if the targets are the same images in
// the same size. Throws InvalidArgument if there are not as many targets as inputs.
std::shared_ptr<const ImageCache> target_cache_for(const Network& network,
                                                   const DatastorePtr& targets,
                                                   const std::shared_ptr<const ImageCache>& inputs,
                                                   size_t budget_bytes);

}  // namespace lockstep
