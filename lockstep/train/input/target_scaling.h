// The statistics of a training's targets, for networks that end in denormalization().
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_images.h"

namespace lockstep {

// The denormalization() layer that ends a network; null: there is none. Throws InvalidArgument for
// one elsewhere.
const LayerNode* target_scaling_of(const Network& network);

// Which channels of the network's result are learned scaled, where it has such a layer: of several
// results those whose loss names neither a cross-entropy nor kl_div, else all.
std::vector<bool> scaled_channels(const Network& network);

// Throws InvalidArgument, too, for a network with such a layer that learns labels, or classes in
// all of several results.
void check_scaling(const Network& network, bool labels);

// Sets the scaling of the targets, if the network has such a layer that does not keep its own, from
// all training targets without augmentation (of larger images their centers). The statistics do not
// depend on the number of threads. Returns a notice for the user, also on targets that are large
// and not scaled; "": there is nothing to say. Throws InvalidArgument for labels and for values
// beyond f32, and DataError.
std::string scale_targets(Network& network, const TrainingImages& images, ThreadPool& pool);

}  // namespace lockstep
