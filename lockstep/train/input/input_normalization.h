// Normalisation of the network's input from the training data.
#pragma once

#include "lockstep/data/batches/statistics.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// Sets the state (offset, factor) of the network's input from the statistics of each channel
// (feature) of the training data without augmentation; see ImageInputOptions. A constant channel
// gets factor 1. Throws InvalidArgument if an input has another number of channels.
void set_input_normalization(Network& network, const std::vector<ChannelSummary>& channels);
void set_input_normalization(Network& network, const ChannelStatistics& statistics);

}  // namespace lockstep
