// Sequences that are cut into segments (DataOptions::sequence_length).
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class Network;

// The layer whose results for the segments of a sequence, with its states by row carried, are not
// those for the whole sequence; "": there is none. It is found by running a copy of the network
// with other parameters on two sequences in three segments, so layers of users need not declare
// anything. It finds layers that depend on steps up to 94 steps away, further for a longer
// `sequence_length` (up to 382 steps) and for filters whose options say so (up to 12,286 steps).
// Throws what Network::forward() throws for 11 steps.
std::string layer_that_segments_change(const Network& network, int64_t sequence_length);

}  // namespace lockstep
