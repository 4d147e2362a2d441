// Normalisation of input layers from the training data.
#pragma once

#include "lockstep/data/statistics.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// Sets the state (offset, factor) of the network's input from statistics of the un-augmented
// training split, a summary for each channel (feature); see ImageInputOptions. A channel that is
// constant gets factor 1. Throws InvalidArgument where an input has another number of channels.
void set_input_normalization(Network& network, const std::vector<ChannelSummary>& channels);
void set_input_normalization(Network& network, const ChannelStatistics& statistics);

}  // namespace lockstep
