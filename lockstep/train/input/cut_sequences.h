// Sequences that are cut into pieces (DataOptions::sequence_length).
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class Network;

// The layer whose results for the pieces of a sequence, with its states by row carried, are not
// those for the whole sequence; "": there is none. It is found by running a copy of the network
// with other parameters on short sequences, so layers of users need not declare anything. Throws
// what Network::forward() throws.
std::string layer_that_pieces_change(const Network& network);

}  // namespace lockstep
