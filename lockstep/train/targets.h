// What a network learns to give: the labels of images, or other images.
#pragma once

#include <cstdint>

#include "lockstep/data/image_cache.h"
#include "lockstep/engine/nn/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Pixels 0 to 255 as targets: 0 to 1.
void pixels_to_targets(const uint8_t* pixels, size_t count, float* targets);

// Throws InvalidArgument unless the network can learn `targets` (or, without, labels of `classes`):
// one output of a fitting size, and a loss that takes them.
void check_fits(const Network& network, const std::vector<std::string>& classes,
                const DatastorePtr& targets);

// What metrics measure where these data are evaluated.
MetricProblem metric_problem(const Network& network, const ImageDatastore& data,
                             const DatastorePtr& targets);

// An image cache of the size that the network's input layer wants (its output, for targets).
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
